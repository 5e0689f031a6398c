package cleanerd.agent.stub;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.function.BooleanSupplier;
import java.util.jar.Attributes;
import java.util.jar.JarFile;

/**
 * What the JVM calls. It knows nothing of Kafka: it loads the implementation from the jar with a class loader of its own
 * and gets out of the way. Compiled for Java 8, so that an older JVM says so instead of not starting.
 *
 * <p>Arguments: {@code key=value}, comma separated. {@code jar} is the jar that the implementation comes from, the one of
 * this class when left out. Attached again with the same build, it does nothing if the one that runs
 * listens; else, or with another build, the new implementation takes over from the old one as soon as that is at no swap.
 */
public final class Agent {
    private static final String BUILD = "Cleanerd-Agent-Build";
    private static volatile boolean begun;
    private static AutoCloseable running;
    private static String runningBuild;

    private Agent() {}

    public static void premain(String arguments, Instrumentation instrumentation) {
        start(arguments, instrumentation, "premain");
    }

    public static void agentmain(String arguments, Instrumentation instrumentation) {
        start(arguments, instrumentation, "agentmain");
    }

    /** Never throws: an exception in premain would keep the broker from starting. */
    private static void start(String arguments, Instrumentation instrumentation, String loadedBy) {
        try {
            if (!begun) {
                begun = true;
                takeOver(arguments, instrumentation, loadedBy);
                return;
            }
            // The one before is waited for until its swap ends, which the thread that serves attaching must not do.
            Thread thread = new Thread(() -> takeOver(arguments, instrumentation, loadedBy), "cleanerd-agent-start");
            thread.setDaemon(true);
            thread.start();
        } catch (Throwable e) { // whatever it is, the broker comes first
            tell(e);
        }
    }

    private static synchronized void takeOver(String arguments, Instrumentation instrumentation, String loadedBy) {
        try {
            String jar = jarOf(arguments);
            String build = buildOf(jar);
            if (running != null && build.equals(runningBuild) && isWell(running)) {
                return;
            }
            Class<?> entry = new ImplementationLoader(jar).loadClass("cleanerd.agent.Entry");
            if (running != null) { // what cannot run with these arguments takes no other one's place
                entry.getMethod("check", String.class).invoke(null, arguments == null ? "" : arguments);
                running.close();
                running = null;
            }
            running = (AutoCloseable) entry.getMethod("start", String.class, Instrumentation.class, String.class)
                    .invoke(null, arguments == null ? "" : arguments, instrumentation, loadedBy);
            runningBuild = build;
        } catch (Throwable e) {
            tell(e);
        }
    }

    /** Whether it listens; one that cannot say so is taken for well. */
    private static boolean isWell(AutoCloseable agent) {
        return !(agent instanceof BooleanSupplier) || ((BooleanSupplier) agent).getAsBoolean();
    }

    private static void tell(Throwable e) {
        System.err.println("cleanerd agent: not started: " + e
                + (e.getCause() == null ? "" : ": " + e.getCause()) + " (Java 11 or newer is needed)");
    }

    private static String jarOf(String arguments) throws Exception {
        if (arguments != null) {
            for (String argument : arguments.split(",")) {
                if (argument.startsWith("jar=")) {
                    return argument.substring("jar=".length());
                }
            }
        }
        return new File(Agent.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getPath();
    }

    private static String buildOf(String jar) throws Exception {
        try (JarFile file = new JarFile(jar)) {
            Attributes attributes = file.getManifest().getMainAttributes();
            String build = attributes.getValue(BUILD);
            if (build == null) {
                throw new IllegalArgumentException(jar + " is no jar of the cleanerd agent");
            }
            return build;
        }
    }
}
