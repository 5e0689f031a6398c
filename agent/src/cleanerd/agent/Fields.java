package cleanerd.agent;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The members of a request's object, each taken once with its type; what is left over in the end is refused. */
final class Fields {
    private final Map<?, ?> members;
    private final String code;
    private final String where;
    private final Set<String> taken = new HashSet<>();

    Fields(Object value, String code, String where) throws Refusal {
        if (!(value instanceof Map<?, ?>)) {
            throw new Refusal(code, where + ": an object expected");
        }
        this.members = (Map<?, ?>) value;
        this.code = code;
        this.where = where;
    }

    String text(String name) throws Refusal {
        String value = textOrNull(name);
        if (value == null) {
            throw wrong(name, "a string expected");
        }
        return value;
    }

    String textOrNull(String name) throws Refusal {
        Object value = take(name);
        if (value != null && !(value instanceof String)) {
            throw wrong(name, "a string expected");
        }
        return (String) value;
    }

    long number(String name, long most) throws Refusal {
        Long value = numberOrNull(name, most);
        if (value == null) {
            throw wrong(name, "a number expected");
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
            throw wrong(name, "a number from 0 to " + most + " expected");
        }
        return (Long) value;
    }

    boolean flag(String name, boolean absent) throws Refusal {
        Object value = take(name);
        if (value != null && !(value instanceof Boolean)) {
            throw wrong(name, "true or false expected");
        }
        return value == null ? absent : (Boolean) value;
    }

    Fields object(String name) throws Refusal {
        return new Fields(take(name), code, where + "." + name);
    }

    /** Objects in an array that is not empty. */
    List<Fields> objects(String name) throws Refusal {
        Object value = take(name);
        List<?> elements = value instanceof List<?> ? (List<?>) value : List.of();
        if (elements.isEmpty()) {
            throw wrong(name, "an array with at least one element expected");
        }
        List<Fields> result = new ArrayList<>(elements.size());
        for (Object element : elements) {
            result.add(new Fields(element, code, where + "." + name + "[" + result.size() + "]"));
        }
        return result;
    }

    /** Numbers from 0 in an array. */
    List<Long> numbers(String name) throws Refusal {
        Object value = take(name);
        if (!(value instanceof List<?>)) {
            throw wrong(name, "an array of numbers expected");
        }
        List<Long> result = new ArrayList<>(((List<?>) value).size());
        for (Object element : (List<?>) value) {
            if (!(element instanceof Long) || (Long) element < 0) {
                throw wrong(name, "an array of numbers from 0 expected");
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
            throw wrong("id", "a number or a short string expected");
        }
        return value;
    }

    /** Whether there is such a member, be it null. */
    boolean has(String name) {
        return members.containsKey(name);
    }

    /** All members but these, as they came. */
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
                throw new Refusal(code, where + ": nobody knows '" + shortened((String) name) + "'");
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

    /** A name from a request, safe to print. */
    static String shortened(String text) {
        return shortened(text, 100);
    }

    static String shortened(String text, int most) {
        return text.length() <= most ? text : text.substring(0, most) + "...";
    }
}
