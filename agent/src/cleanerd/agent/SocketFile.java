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
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashSet;
import java.util.Set;

/**
 * The socket's name in the file system (U-31, A-28). It is bound beside its place, made private, and renamed: nobody
 * finds it before it is. Who connects in between is asked for his uid like everybody.
 */
final class SocketFile implements AutoCloseable {
    private static final String DEFAULT_NAME = ".cleanerd-agent.sock";
    private static final String NEW = ".new";
    private static final int MOST_PATH_BYTES = 100; // the kernel takes 107
    private static final int WAITING = 64;
    private static final Path DESCRIPTORS = Path.of("/proc/self/fd");
    private static final Path PROCESS = Path.of("/proc/self");
    private static final int ROOT = 0;

    private final Path path;
    private final ServerSocketChannel listener;
    private final long inode;

    private SocketFile(Path path, ServerSocketChannel listener) throws IOException {
        this.path = path;
        this.listener = listener;
        this.inode = FileFacts.of(path).inode();
    }

    static Path defaultIn(Path logDir) {
        return logDir.resolve(DEFAULT_NAME);
    }

    /** refuses a directory in which somebody else than the broker's user could put another socket. */
    static void requirePrivate(Path path) throws IOException {
        Path parent = path.getParent();
        int owner = (Integer) Files.getAttribute(parent, "unix:uid");
        int self = (Integer) Files.getAttribute(PROCESS, "unix:uid");
        Set<PosixFilePermission> mode = Files.getPosixFilePermissions(parent);
        if (owner != self && owner != ROOT) {
            throw new IOException("socket=" + path + ": " + parent + " belongs to uid " + owner + ", the broker runs as "
                    + self + ": name a directory of the broker's user");
        }
        if (mode.contains(PosixFilePermission.GROUP_WRITE) || mode.contains(PosixFilePermission.OTHERS_WRITE)) {
            throw new IOException("socket=" + path + ": others may write in " + parent + " (mode "
                    + PosixFilePermissions.toString(mode) + "): name a directory that only the broker's user can write in");
        }
    }

    static SocketFile open(Path path) throws IOException {
        Path directory = path.getParent();
        if (bytesOf(path) + NEW.length() <= MOST_PATH_BYTES) {
            return open(path, directory);
        }
        // A path that is too long for a socket's address is reached through the directory's descriptor.
        Set<Path> before = descriptorsOf(directory);
        FileChannel opened = FileChannel.open(directory, StandardOpenOption.READ);
        try {
            Set<Path> after = descriptorsOf(directory);
            after.removeAll(before);
            for (Path descriptor : after) {
                if (bytesOf(descriptor.resolve(path.getFileName())) + NEW.length() > MOST_PATH_BYTES) {
                    throw new IOException("socket=" + path + ": its name is too long for a socket");
                }
                return open(path, descriptor);
            }
        } finally {
            opened.close();
        }
        throw new IOException(directory + " is not among " + DESCRIPTORS);
    }

    /** {@code way}: leads to the directory of {@code path}, and is short. */
    private static SocketFile open(Path path, Path way) throws IOException {
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS) && answers(way.resolve(path.getFileName()))) {
            throw new IOException(path + " is in use by another process");
        }
        Path fresh = path.resolveSibling(path.getFileName() + NEW);
        Files.deleteIfExists(fresh);
        ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            listener.bind(UnixDomainSocketAddress.of(way.resolve(fresh.getFileName())), WAITING);
            Files.setPosixFilePermissions(fresh, PosixFilePermissions.fromString("rw-------"));
            Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
            return new SocketFile(path, listener);
        } catch (Throwable e) {
            listener.close();
            Files.deleteIfExists(fresh);
            throw e;
        }
    }

    Path path() {
        return path;
    }

    ServerSocketChannel listener() {
        return listener;
    }

    /** Whether a client that looks for the file finds this socket. */
    boolean isThere() {
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
                    continue; // closed meanwhile
                }
            }
        }
        return found;
    }

    private static boolean answers(Path place) {
        try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            return probe.connect(UnixDomainSocketAddress.of(place));
        } catch (IOException e) {
            return false;
        }
    }

    /** Removes the file, if it is still the one that was made here. */
    @Override
    public void close() throws IOException {
        boolean ours = isThere();
        listener.close();
        if (ours) {
            Files.delete(path);
        }
    }
}
