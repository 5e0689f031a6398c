package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/** The path of the file by which clients find the agent: a socket or an announcement (U-31, A-28). */
final class Place {
    /** Suffix of the file until it is complete and renamed. */
    static final String NEW = ".new";

    private static final String DEFAULT_NAME = ".cleanerd-agent.sock";
    private static final Path PROCESS = Path.of("/proc/self");
    private static final int ROOT = 0;

    private Place() {}

    static Path defaultIn(Path logDir) {
        return logDir.resolve(DEFAULT_NAME);
    }

    /** refuses a directory where a user other than the broker's or root could replace the file. */
    static void requirePrivate(Path path) throws IOException {
        Path parent = path.getParent();
        int owner = (Integer) Files.getAttribute(parent, "unix:uid");
        int self = self();
        Set<PosixFilePermission> mode = Files.getPosixFilePermissions(parent);
        if (owner != self && owner != ROOT) {
            throw new IOException("socket=" + path + ": " + parent + " belongs to uid " + owner + ", the broker runs as "
                    + self + "; use a directory of the broker's user");
        }
        if (mode.contains(PosixFilePermission.GROUP_WRITE) || mode.contains(PosixFilePermission.OTHERS_WRITE)) {
            throw new IOException("socket=" + path + ": other users can write to " + parent + " (mode "
                    + PosixFilePermissions.toString(mode) + "); use a directory that only the broker's user can write to");
        }
    }

    /** The uid of the broker's process. */
    static int self() throws IOException {
        return (Integer) Files.getAttribute(PROCESS, "unix:uid");
    }

    static IOException inUse(Path path) {
        return new IOException(path + " is in use by another process");
    }
}
