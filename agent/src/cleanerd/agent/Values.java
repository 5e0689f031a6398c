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

/** Options, lists and maps that are Scala's in one release and Java's in the next, treated alike. */
final class Values {
    private static final String OPTION = "scala.Option";

    /** By name: nobody here asks a class for two methods of one name. To look for one may take several exceptions. */
    private static final ClassValue<Map<String, Method>> KNOWN = new ClassValue<>() {
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

    /** What an option holds, null when it is empty. */
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

    /** {@code elements} as the list type that {@code parameter} asks for. */
    Object listFor(Class<?> parameter, List<?> elements) throws IOException {
        if (parameter == List.class) {
            return elements;
        }
        return callStatic("scala.jdk.javaapi.CollectionConverters", "asScala", List.class, elements);
    }

    /** An option of the type that {@code parameter} asks for: a pair as its own Java or Scala type. */
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

    /** An option that holds {@code value}. */
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

    /** By way of the interface, because Scala's own collections are classes without a name that anybody may call. */
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
        Map<String, Method> known = KNOWN.get(type);
        Method found = known.get(name);
        if (found == null) {
            found = Reflect.method(type, name, parameters);
            known.put(name, found);
        }
        return found;
    }
}
