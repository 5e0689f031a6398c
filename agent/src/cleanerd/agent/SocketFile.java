package cleanerd.agent;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * The socket's name in the file system (U-31, A-28). It is bound beside its place, made private, and renamed: nobody
 * finds it before it is. Who connects in between is asked for his uid like everybody.
 */
final class SocketFile implements AutoCloseable {
    private static final String DEFAULT_NAME = ".cleanerd-agent.sock";
    private static final String NEW = ".new";
    private static final int MOST_PATH_BYTES = 100; // the kernel takes 107

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

    static SocketFile open(Path path) throws IOException {
        Path links = Files.createTempDirectory("cleanerd-agent");
        try {
            // A path that is too long for a socket's address is reached through a short link.
            Path directory = path.toString().length() + NEW.length() <= MOST_PATH_BYTES
                    ? path.getParent()
                    : Files.createSymbolicLink(links.resolve("d"), path.getParent());
            Path place = directory.resolve(path.getFileName());
            if (Files.exists(path, LinkOption.NOFOLLOW_LINKS) && answers(place)) {
                throw new IOException(path + " is in use by another process");
            }
            Path fresh = directory.resolve(path.getFileName() + NEW);
            Files.deleteIfExists(fresh);
            ServerSocketChannel listener = Server.listen(fresh);
            try {
                Files.setPosixFilePermissions(fresh, PosixFilePermissions.fromString("rw-------"));
                Files.move(fresh, place, StandardCopyOption.ATOMIC_MOVE);
                return new SocketFile(path, listener);
            } catch (IOException | RuntimeException e) {
                listener.close();
                Files.deleteIfExists(fresh);
                throw e;
            }
        } finally {
            Files.deleteIfExists(links.resolve("d"));
            Files.deleteIfExists(links);
        }
    }

    Path path() {
        return path;
    }

    ServerSocketChannel listener() {
        return listener;
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
        listener.close();
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS) && FileFacts.of(path).inode() == inode) {
            Files.delete(path);
        }
    }
}
