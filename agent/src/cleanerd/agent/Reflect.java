package cleanerd.agent;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Uses classes that are unknown at compile time. Kafka is in the unnamed module, so no module has to be opened. */
final class Reflect {
    private Reflect() {}

    /** The method of the class, of a superclass, or of an interface of them. */
    static Method method(Class<?> owner, String name, Class<?>... parameters) throws NoSuchMethodException {
        for (Class<?> type = owner; type != null; type = type.getSuperclass()) {
            Method found = declared(type, name, parameters);
            if (found != null) {
                return found;
            }
        }
        for (Class<?> type = owner; type != null; type = type.getSuperclass()) {
            for (Class<?> face : type.getInterfaces()) {
                try {
                    return method(face, name, parameters);
                } catch (NoSuchMethodException e) {
                    continue;
                }
            }
        }
        throw new NoSuchMethodException(owner.getName() + "." + name);
    }

    private static Method declared(Class<?> type, String name, Class<?>... parameters) {
        try {
            Method method = type.getDeclaredMethod(name, parameters);
            method.setAccessible(true);
            return method;
        } catch (NoSuchMethodException e) {
            return null;
        }
    }

    static Field field(Class<?> owner, String name) throws NoSuchFieldException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    /** Calls the method, and throws its exceptions unchanged. */
    static Object call(Method method, Object target, Object... arguments) throws IOException {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            Throwable cause = e.getCause();
            if (cause instanceof IOException) {
                throw (IOException) cause;
            }
            if (cause instanceof RuntimeException) {
                throw (RuntimeException) cause;
            }
            if (cause instanceof Error) {
                throw (Error) cause;
            }
            throw new IllegalStateException(cause);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    static Object get(Field field, Object target) {
        try {
            return field.get(target);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }
}
