package cleanerd.agent;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The members of a request's object, each read with its type. {@link #end} refuses members that were not read. */
final class Fields {
    private final Map<?, ?> members;
    private final String code;
    private final String where;
    private final Set<String> taken = new HashSet<>();

    Fields(Object value, String code, String where) throws Refusal {
        if (!(value instanceof Map<?, ?>)) {
            throw new Refusal(code, where + ": an object is expected");
        }
        this.members = (Map<?, ?>) value;
        this.code = code;
        this.where = where;
    }

    String text(String name) throws Refusal {
        String value = textOrNull(name);
        if (value == null) {
            throw wrong(name, "a string is expected");
        }
        return value;
    }

    String textOrNull(String name) throws Refusal {
        Object value = take(name);
        if (value != null && !(value instanceof String)) {
            throw wrong(name, "a string is expected");
        }
        return (String) value;
    }

    long number(String name, long most) throws Refusal {
        Long value = numberOrNull(name, most);
        if (value == null) {
            throw wrong(name, "a number is expected");
        }
        return value;
    }

    /** A number from 0 to {@code most}, or null. */
    Long numberOrNull(String name, long most) throws Refusal {
        Object value = take(name);
        if (value == null) {
            return null;
        }
        if (!(value instanceof Long) || (Long) value < 0 || (Long) value > most) {
            throw wrong(name, "a number from 0 to " + most + " is expected");
        }
        return (Long) value;
    }

    boolean flag(String name, boolean absent) throws Refusal {
        Object value = take(name);
        if (value != null && !(value instanceof Boolean)) {
            throw wrong(name, "true or false is expected");
        }
        return value == null ? absent : (Boolean) value;
    }

    Fields object(String name) throws Refusal {
        return new Fields(take(name), code, where + "." + name);
    }

    /** The objects of an array with at least one element. */
    List<Fields> objects(String name) throws Refusal {
        Object value = take(name);
        List<?> elements = value instanceof List<?> ? (List<?>) value : List.of();
        if (elements.isEmpty()) {
            throw wrong(name, "an array with at least one element is expected");
        }
        List<Fields> result = new ArrayList<>(elements.size());
        for (Object element : elements) {
            result.add(new Fields(element, code, where + "." + name + "[" + result.size() + "]"));
        }
        return result;
    }

    /** The numbers of an array, none of them negative. */
    List<Long> numbers(String name) throws Refusal {
        Object value = take(name);
        if (!(value instanceof List<?>)) {
            throw wrong(name, "an array of numbers is expected");
        }
        List<Long> result = new ArrayList<>(((List<?>) value).size());
        for (Object element : (List<?>) value) {
            if (!(element instanceof Long) || (Long) element < 0) {
                throw wrong(name, "an array of numbers from 0 is expected");
            }
            result.add((Long) element);
        }
        return result;
    }

    /** The member {@code id}: null, a number or a short string. */
    Object id() throws Refusal {
        Object value = take("id");
        boolean shortText = value instanceof String && ((String) value).length() <= 200;
        if (value != null && !(value instanceof Long) && !shortText) {
            throw wrong("id", "a number or a short string is expected");
        }
        return value;
    }

    /** Whether the member exists, even if it is null. */
    boolean has(String name) {
        return members.containsKey(name);
    }

    /** All members except these, as received. */
    Map<String, Object> allBut(Set<String> names) {
        Map<String, Object> result = new LinkedHashMap<>();
        members.forEach((key, value) -> {
            if (!names.contains(key)) {
                result.put((String) key, value);
            }
        });
        return result;
    }

    void end() throws Refusal {
        for (Object name : members.keySet()) {
            if (!taken.contains(name)) {
                throw new Refusal(code, where + ": unknown member '" + shortened((String) name) + "'");
            }
        }
    }

    private Object take(String name) {
        taken.add(name);
        return members.get(name);
    }

    private Refusal wrong(String name, String what) {
        return new Refusal(code, where + "." + name + ": " + what);
    }

    /** A name from a request, short enough to print. */
    static String shortened(String text) {
        return shortened(text, 100);
    }

    static String shortened(String text, int most) {
        return text.length() <= most ? text : text.substring(0, most) + "...";
    }
}
