package scala;

/** An option like Scala's, with these two methods. */
public final class Option {
    private final Object value;

    public Option(Object value) {
        this.value = value;
    }

    public boolean isEmpty() {
        return value == null;
    }

    public Object get() {
        if (value == null) {
            throw new IllegalStateException("None.get");
        }
        return value;
    }
}
