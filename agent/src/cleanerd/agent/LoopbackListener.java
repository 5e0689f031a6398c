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
 * A port of 127.0.0.1 that the kernel chose. Whoever connects has {@value #PROOF_SECONDS} seconds to prove that
 * he can read the announcement, beside {@value #MOST_UNPROVEN} others at most, who take nothing from those that are
 * served: the oldest goes when one more comes, so that nobody keeps others out by being silent.
 */
final class LoopbackListener implements Listener {
    private static final int MOST_UNPROVEN = 16;
    private static final long PROOF_SECONDS = 5;
    private static final int WAITING = 64;
    private static final long LOOK_MS = 500;
    private static final long TELL_NANOS = 60_000_000_000L;

    private final Path path;
    private final AgentLog journal;
    private final ServerSocketChannel server;
    private final Selector selector;
    private final byte[] secret;
    private final int port;
    private final FileFacts announced;
    private final Deque<Handshake> unproven = new ConcurrentLinkedDeque<>(); // the oldest first
    private final Deque<SocketChannel> proven = new ConcurrentLinkedDeque<>();
    private long refused;
    private long tellAgain = System.nanoTime();

    private LoopbackListener(Path path, AgentLog journal, ServerSocketChannel server, Selector selector)
            throws IOException {
        this.path = path;
        this.journal = journal;
        this.server = server;
        this.selector = selector;
        this.secret = Proof.drawn(Proof.SECRET_BYTES);
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
    public boolean isThere() {
        try {
            // All of it: nothing holds the file open, so its number may be another file's by now.
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
            selector.select(unproven.isEmpty() ? 0 : LOOK_MS);
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); ) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.attachment() == null) {
                    begin(server.accept());
                } else {
                    advance(key, (Handshake) key.attachment());
                }
            }
            refuseTheLate();
            selector.selectNow(); // lets go of the channels that are proven: a key keeps a channel from being blocking
        }
    }

    private void begin(SocketChannel channel) throws IOException {
        if (channel == null) {
            return; // it has hung up already
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

    private void refuseTheLate() throws IOException {
        long now = System.nanoTime();
        while (!unproven.isEmpty() && unproven.peek().isLate(now)) {
            refuse(unproven.peek());
        }
    }

    private void refuse(Handshake handshake) throws IOException {
        unproven.remove(handshake);
        handshake.channel.close();
        refused++;
        if (System.nanoTime() - tellAgain >= 0) { // anybody can bring this about, so it must not fill the broker's log
            journal.warn(refused + " connections to port " + port + " did not prove that they may read " + path);
            tellAgain = System.nanoTime() + TELL_NANOS;
            refused = 0;
        }
    }

    @Override
    public void close() throws IOException {
        boolean ours = isThere();
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
