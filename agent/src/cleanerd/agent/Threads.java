package cleanerd.agent;

/** Starts the agent's threads. A test build replaces this class, to simulate a lack of threads. */
final class Threads {
    private Threads() {}

    /** Starts a daemon thread; throws an Error if the system has no thread at this moment. */
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
