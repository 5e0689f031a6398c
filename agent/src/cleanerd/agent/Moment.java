package cleanerd.agent;

/** Named moments in a swap. They have no effect; a test build of the agent replaces this class to stop at them. */
final class Moment {
    private Moment() {}

    static void reached(String name) {}
}
