package cleanerd.agent;

/** Where the agent's threads come from; the test build has another class of this name, which sometimes has none. */
final class Threads {
    private Threads() {}

    /** A daemon thread that runs {@code work}; an Error when the system has none to give at this moment. */
    static Thread start(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
