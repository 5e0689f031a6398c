package cleanerd.agent;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The protocol's JSON, read strictly: whole numbers of 64 bits, unique names, limited depth and number of values. Without
 * limits, a line of 4 MiB could have a million lists. Values are Map, List, String, Long, Boolean and null.
 */
final class Json {
    static final int MAX_DEPTH = 32;
    static final int MAX_VALUES = 200_000;

    private final String text;
    private int at;
    private int values;

    private Json(String text) {
        this.text = text;
    }

    /** The value of {@code text}; bad_request if that is not exactly one value. */
    static Object read(String text) throws Refusal {
        Json json = new Json(text);
        Object value = json.value(0);
        json.space();
        if (json.at < text.length()) {
            throw json.wrong("more than one value");
        }
        return value;
    }

    private Object value(int depth) throws Refusal {
        if (depth > MAX_DEPTH || ++values > MAX_VALUES) {
            throw wrong(depth > MAX_DEPTH ? "nested too deeply" : "too many values");
        }
        space();
        char next = peek();
        switch (next) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object(int depth) throws Refusal {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        space();
        if (peek() == '}') {
            at++;
            return members;
        }
        while (true) {
            space();
            if (peek() != '"') {
                throw wrong("a name in quotes is expected");
            }
            String name = string();
            space();
            expect(':');
            if (members.containsKey(name)) {
                throw wrong("a name occurs twice");
            }
            members.put(name, value(depth + 1));
            if (endOf('}')) {
                return members;
            }
        }
    }

    private List<Object> array(int depth) throws Refusal {
        List<Object> elements = new ArrayList<>(0);
        at++;
        space();
        if (peek() == ']') {
            at++;
            return elements;
        }
        while (true) {
            elements.add(value(depth + 1));
            if (endOf(']')) {
                return elements;
            }
        }
    }

    private boolean endOf(char end) throws Refusal {
        space();
        if (peek() == end) {
            at++;
            return true;
        }
        expect(',');
        return false;
    }

    private String string() throws Refusal {
        StringBuilder result = new StringBuilder();
        at++;
        while (true) {
            char next = peek();
            at++;
            if (next == '"') {
                return result.toString();
            }
            if (next < ' ') {
                throw wrong("a string has a control character");
            }
            result.append(next == '\\' ? escaped() : next);
        }
    }

    private char escaped() throws Refusal {
        char kind = peek();
        at++;
        switch (kind) {
            case '"':
            case '\\':
            case '/':
                return kind;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                int code = 0;
                for (int i = 0; i < 4; i++, at++) {
                    char c = peek();
                    int digit = c < 128 ? Character.digit(c, 16) : -1;
                    if (digit < 0) {
                        throw wrong("four hex digits are expected");
                    }
                    code = code * 16 + digit;
                }
                return (char) code;
            default:
                throw wrong("an unknown escape");
        }
    }

    private Object word(String word, Object value) throws Refusal {
        if (!text.startsWith(word, at)) {
            throw wrong("a value is expected");
        }
        at += word.length();
        return value;
    }

    private Long number() throws Refusal {
        int start = at;
        if (at < text.length() && text.charAt(at) == '-') {
            at++;
        }
        int digits = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        boolean leadingZero = at - digits > 1 && text.charAt(digits) == '0';
        if (at == digits || at - digits > 19 || leadingZero) {
            throw wrong("a value is expected");
        }
        if (at < text.length() && ".eE".indexOf(text.charAt(at)) >= 0) {
            throw wrong("a whole number is expected");
        }
        try {
            return Long.parseLong(text, start, at, 10);
        } catch (NumberFormatException e) {
            throw wrong("a number of 64 bits is expected");
        }
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() throws Refusal {
        if (at >= text.length()) {
            throw wrong("the text ends too early");
        }
        return text.charAt(at);
    }

    private void expect(char wanted) throws Refusal {
        if (peek() != wanted) {
            throw wrong("'" + wanted + "' is expected");
        }
        at++;
    }

    private Refusal wrong(String what) {
        return new Refusal("bad_request", "invalid JSON at character " + at + ": " + what);
    }

    /** {@code value} as one line of ASCII. */
    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?>) {
            out.append('{');
            String gap = "";
            for (Map.Entry<?, ?> member : ((Map<?, ?>) value).entrySet()) {
                out.append(gap);
                writeString(member.getKey().toString(), out);
                out.append(':');
                write(member.getValue(), out);
                gap = ",";
            }
            out.append('}');
        } else if (value instanceof Collection<?>) {
            out.append('[');
            String gap = "";
            for (Object element : (Collection<?>) value) {
                out.append(gap);
                write(element, out);
                gap = ",";
            }
            out.append(']');
        } else if (value == null || value instanceof Boolean || value instanceof Number) {
            out.append(value);
        } else {
            writeString(value.toString(), out);
        }
    }

    private static void writeString(String value, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
