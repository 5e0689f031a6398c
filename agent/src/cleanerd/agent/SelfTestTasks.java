package cleanerd.agent;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledFuture;

/** The scheduler of a self-test's log: it stores the scheduled tasks, and runs them when the self-test calls {@link #run}. */
final class SelfTestTasks implements InvocationHandler {
    private final List<Task> tasks = new ArrayList<>();

    /** {@code work}: a Runnable, or a function of Scala. */
    private static final class Task {
        private final String name;
        private final Object work;
        private final long delayMs;

        Task(String name, Object work, long delayMs) {
            this.name = name;
            this.work = work;
            this.delayMs = delayMs;
        }

        String name() {
            return name;
        }

        Object work() {
            return work;
        }

        long delayMs() {
            return delayMs;
        }
    }

    @Override
    public synchronized Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (method.isDefault()) {
            Class<?> type = method.getDeclaringClass(); // which calls the proxy again, with all the arguments
            return MethodHandles.privateLookupIn(type, MethodHandles.lookup()).unreflectSpecial(method, type)
                    .bindTo(proxy).invokeWithArguments(arguments == null ? new Object[0] : arguments);
        }
        if (arguments != null && arguments.length >= 2 && arguments[0] instanceof String) {
            long delayMs = arguments.length > 2 && arguments[2] instanceof Long ? (Long) arguments[2] : 0;
            tasks.add(new Task((String) arguments[0], arguments[1], delayMs));
        }
        Class<?> result = method.getReturnType();
        if (result == ScheduledFuture.class) {
            // Kafka only cancels it.
            CompletableFuture<Object> never = new CompletableFuture<>();
            return Proxy.newProxyInstance(SelfTestTasks.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
                    (future, called, values) -> called.getName().equals("cancel") ? never.cancel(false) : null);
        }
        return result == boolean.class ? (Object) false : result == int.class ? (Object) 0 : null;
    }

    /** Number of stored tasks with this name and delay. */
    synchronized long count(String name, long delayMs) {
        return tasks.stream().filter(task -> task.name().equals(name) && task.delayMs() == delayMs).count();
    }

    synchronized void run(String name) throws IOException, ReflectiveOperationException {
        for (Task task : List.copyOf(tasks)) {
            if (!task.name().equals(name)) {
                continue;
            }
            if (task.work() instanceof Runnable) {
                ((Runnable) task.work()).run();
            } else {
                Reflect.call(Reflect.method(task.work().getClass(), "apply"), task.work());
            }
        }
    }
}
