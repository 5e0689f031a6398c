package cleanerd.agent;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;

/**
 * Serves the clients that the {@link Listener} accepts, up to {@link #MOST_CONNECTIONS} at a time. No failure
 * here is permanent: {@link #watch} runs every second, and restarts the accepting thread.
 */
final class Server implements AutoCloseable {
    /** As many as a daemon with 32 threads and 24 log directories can use. Each takes an idle thread and 16 KB. */
    static final int MOST_CONNECTIONS = 64;

    private static final int MOST_LARGE_LINES = 2;
    private static final long PAUSE_MS = 1000;

    private final Requests requests;
    private final AgentLog journal;
    private final Set<Connection> connections = ConcurrentHashMap.newKeySet();
    private final Semaphore places = new Semaphore(MOST_CONNECTIONS);
    private final Semaphore largeLines = new Semaphore(MOST_LARGE_LINES);
    private volatile Listener socket;
    private volatile Thread accepting;
    private volatile boolean closed;

    Server(Requests requests, AgentLog journal) {
        this.requests = requests;
        this.journal = journal;
    }

    /** Replaces the listener. Connections of the earlier one stay open. */
    void listenOn(Listener found) throws IOException {
        Listener before = socket;
        socket = found;
        if (before != null) {
            before.close();
        }
    }

    /** Whether a new client would be served. */
    boolean listens() {
        Listener current = socket;
        Thread thread = accepting;
        return current != null && current.isReachable() && thread != null && thread.isAlive();
    }

    boolean isAt(Path path) {
        Listener current = socket;
        return current != null && current.path().equals(path) && current.isReachable();
    }

    /**
     * Call this regularly. It closes connections that are too slow, retries to end pauses, and starts the accepting thread
     * if there is none.
     */
    void watch() {
        long now = System.nanoTime();
        connections.forEach(connection -> connection.closeIfLate(now));
        requests.watch();
        Thread thread = accepting;
        if (socket != null && !closed && (thread == null || !thread.isAlive())) {
            accepting = Threads.start("cleanerd-agent-accept", this::accept);
        }
    }

    /** Tries to end the pauses that could not be ended before. Returns whether some remain. */
    boolean retryPauses() {
        return requests.watch();
    }

    private void accept() {
        while (!closed) {
            Listener current = socket;
            try {
                admit(current.accept());
            } catch (Throwable e) { // also an Error: after a lack of threads or memory it has to accept again
                if (closed || current != socket) {
                    continue; // another listener has replaced it
                }
                journal.tryToWarn("a connection was not accepted: " + e);
                Threads.pause(PAUSE_MS); // a lack of descriptors or threads ends
            }
        }
    }

    private void admit(SocketChannel channel) throws IOException {
        boolean admitted = false;
        try {
            if (!places.tryAcquire()) {
                refuse(channel);
                return;
            }
            try {
                begin(channel);
                admitted = true;
            } finally {
                if (!admitted) {
                    places.release();
                }
            }
        } finally {
            if (!admitted) {
                channel.close();
            }
        }
    }

    private void begin(SocketChannel channel) {
        Connection[] itself = new Connection[1];
        itself[0] = new Connection(channel, requests, largeLines, () -> {
            connections.remove(itself[0]);
            places.release();
        });
        connections.add(itself[0]);
        boolean begun = false;
        try {
            Threads.start("cleanerd-agent-client", itself[0]);
            begun = true;
        } finally {
            if (!begun) {
                connections.remove(itself[0]);
            }
        }
    }

    private static void refuse(SocketChannel channel) throws IOException {
        channel.configureBlocking(false);
        String answer = Json.write(Requests.refused(null, "too_many", "all " + MOST_CONNECTIONS
                + " connections are in use; try again later", null));
        channel.write(ByteBuffer.wrap((answer + "\n").getBytes(StandardCharsets.US_ASCII)));
    }

    /** Refuses new swaps, and waits until none is in progress. */
    void finish() {
        requests.close();
        while (connections.stream().anyMatch(Connection::working)) {
            Threads.pause(20);
        }
    }

    @Override
    public void close() throws IOException {
        closed = true;
        finish();
        closeSocket();
        connections.forEach(Connection::close);
    }

    /** Also removes the listener's file. */
    void closeSocket() throws IOException {
        Listener current = socket;
        if (current != null) {
            current.close();
        }
    }
}
