package cleanerd.agent;

/** A request that is answered with a code of the protocol; an ordinary outcome, so without a stack trace. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1L;

    private final String code;

    Refusal(String code, String text) {
        super(text, null, false, false);
        this.code = code;
    }

    String code() {
        return code;
    }
}
