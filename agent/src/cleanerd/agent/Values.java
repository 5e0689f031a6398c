package cleanerd.agent;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;

/** Reads and creates options, lists and maps of Scala or Java, depending on the release. */
final class Values {
    private static final String OPTION = "scala.Option";

    /** Methods by name, because a search may throw several exceptions. Their names are unique per class. */
    private static final ClassValue<Map<String, Method>> METHODS = new ClassValue<>() {
        @Override
        protected Map<String, Method> computeValue(Class<?> type) {
            return new ConcurrentHashMap<>();
        }
    };

    private final Members members;
    private final Map<String, Class<?>> types = new ConcurrentHashMap<>();

    Values(Members members) {
        this.members = members;
    }

    static boolean isOption(Class<?> type) {
        return type == Optional.class || type.getName().equals(OPTION);
    }

    /** The value of an option, null if it is empty. */
    Object orNull(Object option) throws IOException {
        if (option instanceof Optional<?>) {
            return ((Optional<?>) option).orElse(null);
        }
        if (option instanceof OptionalLong) {
            OptionalLong found = (OptionalLong) option;
            return found.isPresent() ? found.getAsLong() : null;
        }
        return option == null || flag(option, "isEmpty") ? null : call(option, "get");
    }

    List<Object> list(Object collection) throws IOException {
        if (collection instanceof Iterable<?>) {
            List<Object> result = new ArrayList<>();
            ((Iterable<?>) collection).forEach(result::add);
            return result;
        }
        List<Object> result = new ArrayList<>();
        Object iterator = callAs("scala.collection.IterableOnce", collection, "iterator");
        while ((Boolean) callAs("scala.collection.Iterator", iterator, "hasNext")) {
            result.add(callAs("scala.collection.Iterator", iterator, "next"));
        }
        return result;
    }

    Map<Object, Object> map(Object map) throws IOException {
        if (map instanceof Map<?, ?>) {
            return new LinkedHashMap<>((Map<?, ?>) map);
        }
        Map<Object, Object> result = new LinkedHashMap<>();
        for (Object pair : list(map)) {
            result.put(call(pair, "_1"), call(pair, "_2"));
        }
        return result;
    }

    /** {@code elements} as a list of the type {@code parameter}. */
    Object listFor(Class<?> parameter, List<?> elements) throws IOException {
        if (parameter == List.class) {
            return elements;
        }
        return callStatic("scala.jdk.javaapi.CollectionConverters", "asScala", List.class, elements);
    }

    /** An option of the type {@code parameter} with a pair of Java or Scala. */
    Object pairOption(Class<?> parameter, Object left, Object right) throws IOException {
        if (parameter == Optional.class) {
            return Optional.of(new AbstractMap.SimpleImmutableEntry<>(left, right));
        }
        try {
            return option(parameter, members.named("scala.Tuple2").getConstructor(Object.class, Object.class)
                    .newInstance(left, right));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** An option of the type {@code parameter} with {@code value}. */
    Object option(Class<?> parameter, Object value) throws IOException {
        return parameter == Optional.class ? Optional.of(value) : callStatic(OPTION, "apply", Object.class, value);
    }

    Object emptyOption(Class<?> parameter) throws IOException {
        if (parameter == Optional.class) {
            return Optional.empty();
        }
        try {
            return Reflect.call(method(named(OPTION), "empty"), null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static boolean flag(Object target, String name) throws IOException {
        return (Boolean) call(target, name);
    }

    private static Object call(Object target, String name) throws IOException {
        try {
            return Reflect.call(method(target.getClass(), name), target);
        } catch (NoSuchMethodException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Calls the method of an interface, because Scala's collection classes are not accessible. */
    private Object callAs(String type, Object target, String name) throws IOException {
        try {
            return Reflect.call(method(named(type), name), target);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private Object callStatic(String type, String name, Class<?> parameter, Object argument) throws IOException {
        try {
            return Reflect.call(method(named(type), name, parameter), null, argument);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private Class<?> named(String type) throws ClassNotFoundException {
        Class<?> found = types.get(type);
        if (found == null) {
            found = members.named(type);
            types.put(type, found);
        }
        return found;
    }

    private static Method method(Class<?> type, String name, Class<?>... parameters) throws NoSuchMethodException {
        Map<String, Method> known = METHODS.get(type);
        Method found = known.get(name);
        if (found == null) {
            found = Reflect.method(type, name, parameters);
            known.put(name, found);
        }
        return found;
    }
}
