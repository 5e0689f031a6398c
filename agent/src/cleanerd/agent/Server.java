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
 * Serves those clients that the {@link Listener} lets in, up to {@link #MOST_CONNECTIONS} at a time. Nothing that goes wrong here
 * is for good: {@link #watch} is called every second, and brings back what is missing.
 */
final class Server implements AutoCloseable {
    /** For each a thread that waits, and 16 KB: as many as a daemon with 32 threads and 24 log directories can use. */
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

    /** From now on clients come by {@code found}; those who came by another socket stay. */
    void listenOn(Listener found) throws IOException {
        Listener before = socket;
        socket = found;
        if (before != null) {
            before.close();
        }
    }

    /** Whether a client that comes now is served. */
    boolean listens() {
        Listener current = socket;
        Thread thread = accepting;
        return current != null && current.isThere() && thread != null && thread.isAlive();
    }

    boolean isAt(Path path) {
        Listener current = socket;
        return current != null && current.path().equals(path) && current.isThere();
    }

    /**
     * To be called now and then: hangs up on whoever is late, ends pauses that could not be ended, and has clients
     * accepted when nobody does that.
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

    /** Tries to end the pauses that could not be ended; whether some are left. */
    boolean keepsPauses() {
        return requests.watch();
    }

    private void accept() {
        while (!closed) {
            Listener current = socket;
            try {
                admit(current.accept());
            } catch (Throwable e) { // also an Error: a moment without threads or memory must not leave it deaf
                if (closed || current != socket) {
                    continue; // another socket has taken its place
                }
                journal.tryToWarn("a connection was not accepted: " + e);
                Threads.pause(PAUSE_MS); // no descriptors, no threads: they come back
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
        String answer = Json.write(Requests.refused(null, "too_many", "there are " + MOST_CONNECTIONS
                + " connections already", null));
        channel.write(ByteBuffer.wrap((answer + "\n").getBytes(StandardCharsets.US_ASCII)));
    }

    /** Begins no swap any more, and waits until none is at work. */
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

    /** Removes the socket's file too. */
    void closeSocket() throws IOException {
        Listener current = socket;
        if (current != null) {
            current.close();
        }
    }
}
