package cleanerd.agent;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import jdk.net.ExtendedSocketOptions;

/**
 * Checks a client's user: only the broker's user and root may connect. The socket file's mode 0600 already ensures
 * this. The user is a second check, for a Java with the module {@code jdk.net}.
 */
final class Peers {
    private final UserPrincipal self;
    private final UserPrincipal root;
    private final boolean canCheck;

    Peers(AgentLog journal) throws IOException {
        self = Files.getOwner(Path.of("/proc/self"));
        root = self.getName().equals("root") ? self
                : Path.of("/").getFileSystem().getUserPrincipalLookupService().lookupPrincipalByName("root");
        canCheck = ModuleLayer.boot().findModule("jdk.net").isPresent();
        if (!canCheck) {
            journal.info("this Java has no module jdk.net: only the socket file's mode restricts who may connect");
        }
    }

    /** The client's user if it may not be served, otherwise null. */
    String forbiddenUser(SocketChannel channel) throws IOException {
        if (!canCheck) {
            return null;
        }
        UserPrincipal peer = Kernel.peerOf(channel);
        return peer.equals(self) || peer.equals(root) ? null : peer.getName();
    }

    /** Loaded only if the module exists. */
    private static final class Kernel {
        static UserPrincipal peerOf(SocketChannel channel) throws IOException {
            return channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
        }
    }
}
