package cleanerd.agent;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import jdk.net.ExtendedSocketOptions;

/** Accepts clients of the broker's own user, and of root, up to eight at a time. */
final class Server implements AutoCloseable {
    private static final int MOST_CONNECTIONS = 8;
    private static final int MOST_LARGE_LINES = 2;
    private static final long WATCH_MS = 1000;

    private final ServerSocketChannel listener;
    private final Requests requests;
    private final AgentLog journal;
    private final Set<Connection> connections = ConcurrentHashMap.newKeySet();
    private final Semaphore places = new Semaphore(MOST_CONNECTIONS);
    private final Semaphore largeLines = new Semaphore(MOST_LARGE_LINES);
    private final UserPrincipal self;
    private final UserPrincipal root;
    private volatile boolean closed;

    Server(ServerSocketChannel listener, Requests requests, AgentLog journal) throws IOException {
        this.listener = listener;
        this.requests = requests;
        this.journal = journal;
        this.self = Files.getOwner(Path.of("/proc/self"));
        this.root = self.getName().equals("root") ? self
                : Path.of("/").getFileSystem().getUserPrincipalLookupService().lookupPrincipalByName("root");
    }

    void start() {
        thread("cleanerd-agent-accept", this::accept);
        thread("cleanerd-agent-watch", this::watch);
    }

    private void accept() {
        while (!closed) {
            try {
                admit(listener.accept());
            } catch (IOException | RuntimeException e) {
                if (closed || !listener.isOpen()) {
                    return;
                }
                journal.warn("a connection was not accepted: " + e);
                pause(WATCH_MS); // no descriptors left: they come back
            }
        }
    }

    private void admit(SocketChannel channel) throws IOException {
        UserPrincipal peer = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
        if (!peer.equals(self) && !peer.equals(root)) {
            channel.close();
            journal.warn("a connection of user " + peer.getName() + " was refused");
            return;
        }
        if (!places.tryAcquire()) {
            channel.configureBlocking(false);
            String answer = Json.write(Requests.refused(null, "too_many", "there are " + MOST_CONNECTIONS
                    + " connections already", null));
            channel.write(ByteBuffer.wrap((answer + "\n").getBytes(StandardCharsets.US_ASCII)));
            channel.close();
            return;
        }
        Connection[] self = new Connection[1];
        self[0] = new Connection(channel, requests, largeLines, () -> {
            connections.remove(self[0]);
            places.release();
        });
        connections.add(self[0]);
        thread("cleanerd-agent-client", self[0]);
    }

    private void watch() {
        while (!closed) {
            pause(WATCH_MS);
            long now = System.nanoTime();
            connections.forEach(connection -> connection.closeIfLate(now));
        }
    }

    /** Ends once no request is at work any more. */
    @Override
    public void close() throws IOException {
        closed = true;
        listener.close();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (connections.stream().anyMatch(Connection::working) && System.nanoTime() < end) {
            pause(20);
        }
        connections.forEach(Connection::close);
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void thread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** A listener on {@code address}; nothing is accepted before the caller says so. */
    static ServerSocketChannel listen(Path address) throws IOException {
        ServerSocketChannel channel = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.bind(UnixDomainSocketAddress.of(address), 64);
            return channel;
        } catch (IOException | RuntimeException e) {
            channel.close();
            throw e;
        }
    }
}
