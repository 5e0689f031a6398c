package cleanerd.agent;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashSet;
import java.util.Set;

/**
 * The unix socket's file (U-31, A-28). It is bound under another name, made private, and renamed. Java cannot bind a private
 * socket: until then its mode depends on the umask, so clients that connect before are disconnected.
 */
final class SocketFile implements Listener {
    private static final int MOST_PATH_BYTES = 100; // the kernel's limit is 107
    private static final int WAITING = 64;
    private static final Path DESCRIPTORS = Path.of("/proc/self/fd");

    private final Path path;
    private final ServerSocketChannel listener;
    private final Peers peers;
    private final AgentLog journal;
    private final long inode;

    private SocketFile(Path path, ServerSocketChannel listener, Peers peers, AgentLog journal) throws IOException {
        this.path = path;
        this.listener = listener;
        this.peers = peers;
        this.journal = journal;
        this.inode = FileFacts.of(path).inode();
    }

    static SocketFile open(Path path, Peers peers, AgentLog journal) throws IOException {
        Path directory = path.getParent();
        if (bytesOf(path) + Place.NEW.length() <= MOST_PATH_BYTES) {
            return open(path, directory, peers, journal);
        }
        // A path too long for a socket's address: use the directory's descriptor instead.
        Set<Path> before = descriptorsOf(directory);
        FileChannel opened = FileChannel.open(directory, StandardOpenOption.READ);
        try {
            Set<Path> after = descriptorsOf(directory);
            after.removeAll(before);
            for (Path descriptor : after) {
                if (bytesOf(descriptor.resolve(path.getFileName())) + Place.NEW.length() > MOST_PATH_BYTES) {
                    throw new IOException("socket=" + path + ": the file name is too long for a socket; use a shorter one");
                }
                return open(path, descriptor, peers, journal);
            }
        } finally {
            opened.close();
        }
        throw new IOException("the descriptor of " + directory + " is not in " + DESCRIPTORS);
    }

    /** {@code shortDirectory}: a short path of the directory of {@code path}. */
    private static SocketFile open(Path path, Path shortDirectory, Peers peers, AgentLog journal) throws IOException {
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)
                && (answers(shortDirectory.resolve(path.getFileName())) || Announcement.answers(path))) {
            throw Place.inUse(path);
        }
        Path fresh = path.resolveSibling(path.getFileName() + Place.NEW);
        Files.deleteIfExists(fresh);
        ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            listener.bind(UnixDomainSocketAddress.of(shortDirectory.resolve(fresh.getFileName())), WAITING);
            Files.setPosixFilePermissions(fresh, PosixFilePermissions.fromString("rw-------"));
            disconnectEarlyClients(listener);
            Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
            return new SocketFile(path, listener, peers, journal);
        } catch (Throwable e) {
            listener.close();
            Files.deleteIfExists(fresh);
            throw e;
        }
    }

    /** Closes all connections of clients that are waiting already. */
    private static void disconnectEarlyClients(ServerSocketChannel listener) throws IOException {
        listener.configureBlocking(false);
        for (SocketChannel early = listener.accept(); early != null; early = listener.accept()) {
            early.close();
        }
        listener.configureBlocking(true);
    }

    @Override
    public Path path() {
        return path;
    }

    @Override
    public String address() {
        return path.toString();
    }

    @Override
    public SocketChannel accept() throws IOException {
        while (true) {
            SocketChannel channel = listener.accept();
            boolean served = false;
            try {
                String user = peers.forbiddenUser(channel);
                served = user == null;
                if (served) {
                    return channel;
                }
                journal.warn("refused a connection of user " + user + ": only the broker's user and root may connect");
            } finally {
                if (!served) {
                    channel.close();
                }
            }
        }
    }

    @Override
    public boolean isReachable() {
        try {
            return listener.isOpen() && FileFacts.of(path).inode() == inode;
        } catch (IOException e) {
            return false;
        }
    }

    private static int bytesOf(Path path) {
        return path.toString().getBytes(StandardCharsets.UTF_8).length;
    }

    private static Set<Path> descriptorsOf(Path directory) throws IOException {
        Path real = directory.toRealPath();
        Set<Path> found = new HashSet<>();
        try (DirectoryStream<Path> descriptors = Files.newDirectoryStream(DESCRIPTORS)) {
            for (Path descriptor : descriptors) {
                try {
                    if (Files.readSymbolicLink(descriptor).equals(real)) {
                        found.add(descriptor);
                    }
                } catch (IOException e) {
                    continue; // it was closed in between
                }
            }
        }
        return found;
    }

    private static boolean answers(Path socket) {
        try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            return probe.connect(UnixDomainSocketAddress.of(socket));
        } catch (IOException e) {
            return false;
        }
    }

    @Override
    public void close() throws IOException {
        boolean ours = isReachable();
        listener.close();
        if (ours) {
            Files.delete(path);
        }
    }
}
