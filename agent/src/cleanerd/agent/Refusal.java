package cleanerd.agent;

/** Ends a request with an error code of the protocol. It is an expected outcome, so it has no stack trace. */
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
