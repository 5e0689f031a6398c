package cleanerd.agent;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** Calls without compile-time knowledge of a class. Kafka lies in the unnamed module, so nothing must be opened. */
final class Reflect {
    private Reflect() {}

    /** The method, declared by the class, a superclass or an interface of them. */
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

    /** Call it; what the method throws comes out as it is. */
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
