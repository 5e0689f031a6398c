package cleanerd.agent;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.ConcurrentLinkedDeque;

/**
 * A port of 127.0.0.1 that the kernel chose. A client has {@value #PROOF_SECONDS} seconds to prove that it can read
 * the announcement. At most {@value #MOST_UNPROVEN} clients without a proof are connected, and they take no slot of served
 * clients. One more disconnects the oldest, so silent clients cannot keep others out.
 */
final class LoopbackListener implements Listener {
    private static final int MOST_UNPROVEN = 16;
    private static final long PROOF_SECONDS = 5;
    private static final int WAITING = 64;
    private static final long CHECK_MS = 500;
    private static final long WARN_INTERVAL_NANOS = 60_000_000_000L;

    private final Path path;
    private final AgentLog journal;
    private final ServerSocketChannel server;
    private final Selector selector;
    private final byte[] secret;
    private final int port;
    private final FileFacts announced;
    private final Deque<Handshake> unproven = new ConcurrentLinkedDeque<>(); // oldest first
    private final Deque<SocketChannel> proven = new ConcurrentLinkedDeque<>();
    private long refused;
    private long warnAgain = System.nanoTime();

    private LoopbackListener(Path path, AgentLog journal, ServerSocketChannel server, Selector selector)
            throws IOException {
        this.path = path;
        this.journal = journal;
        this.server = server;
        this.selector = selector;
        this.secret = Proof.randomBytes(Proof.SECRET_BYTES);
        server.bind(new InetSocketAddress(Announcement.loopback(), 0), WAITING);
        server.configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        this.port = ((InetSocketAddress) server.getLocalAddress()).getPort();
        Announcement.write(path, port, secret);
        this.announced = FileFacts.of(path);
    }

    static LoopbackListener open(Path path, AgentLog journal) throws IOException {
        if (Announcement.answers(path)) {
            throw Place.inUse(path);
        }
        Selector selector = Selector.open();
        ServerSocketChannel server = null;
        try {
            server = ServerSocketChannel.open();
            return new LoopbackListener(path, journal, server, selector);
        } catch (Throwable e) {
            selector.close();
            if (server != null) {
                server.close();
            }
            throw e;
        }
    }

    @Override
    public Path path() {
        return path;
    }

    @Override
    public String address() {
        return "port " + port + " of 127.0.0.1, which " + path + " announces";
    }

    @Override
    public boolean isReachable() {
        try {
            // All facts: the agent does not keep the file open, so another file may have its inode.
            return server.isOpen() && FileFacts.of(path).equals(announced);
        } catch (IOException e) {
            return false;
        }
    }

    @Override
    public SocketChannel accept() throws IOException {
        while (true) {
            SocketChannel channel = proven.poll();
            if (channel != null) {
                channel.configureBlocking(true);
                return channel;
            }
            selector.select(unproven.isEmpty() ? 0 : CHECK_MS);
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.attachment() == null) {
                    begin(server.accept());
                } else {
                    advance(key, (Handshake) key.attachment());
                }
            }
            refuseLate();
            selector.selectNow(); // removes the keys of proven channels: a channel with a key cannot become blocking
        }
    }

    private void begin(SocketChannel channel) throws IOException {
        if (channel == null) {
            return; // it has disconnected already
        }
        boolean begun = false;
        try {
            channel.configureBlocking(false);
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            Handshake handshake = new Handshake(channel, secret, System.nanoTime() + PROOF_SECONDS * 1_000_000_000L);
            channel.register(selector, SelectionKey.OP_READ, handshake);
            unproven.add(handshake);
            begun = true;
        } finally {
            if (!begun) {
                channel.close();
            }
        }
        if (unproven.size() > MOST_UNPROVEN) {
            refuse(unproven.peek());
        }
    }

    private void advance(SelectionKey key, Handshake handshake) throws IOException {
        try {
            if (handshake.advance()) {
                key.cancel();
                unproven.remove(handshake);
                proven.add(handshake.channel);
            }
        } catch (IOException e) {
            refuse(handshake);
        }
    }

    private void refuseLate() throws IOException {
        long now = System.nanoTime();
        while (!unproven.isEmpty() && unproven.peek().isLate(now)) {
            refuse(unproven.peek());
        }
    }

    private void refuse(Handshake handshake) throws IOException {
        unproven.remove(handshake);
        handshake.channel.close();
        refused++;
        if (System.nanoTime() - warnAgain >= 0) { // any user can cause this, so it must not fill the broker's log
            journal.warn(refused + " connections to port " + port + " did not prove that they may read " + path);
            warnAgain = System.nanoTime() + WARN_INTERVAL_NANOS;
            refused = 0;
        }
    }

    @Override
    public void close() throws IOException {
        boolean ours = isReachable();
        server.close();
        selector.close();
        for (Handshake handshake : unproven) {
            handshake.channel.close();
        }
        for (SocketChannel channel : proven) {
            channel.close();
        }
        if (ours) {
            Files.delete(path);
        }
    }
}
