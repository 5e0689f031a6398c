package cleanerd.agent;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import jdk.net.ExtendedSocketOptions;

/**
 * Who may connect: the broker's own user, and root. The kernel lets nobody else connect to a socket file of mode
 * 0600; asking it who came is a second look, which a Java without the module {@code jdk.net} cannot take.
 */
final class Peers {
    private final UserPrincipal self;
    private final UserPrincipal root;
    private final boolean canAsk;

    Peers(AgentLog journal) throws IOException {
        self = Files.getOwner(Path.of("/proc/self"));
        root = self.getName().equals("root") ? self
                : Path.of("/").getFileSystem().getUserPrincipalLookupService().lookupPrincipalByName("root");
        canAsk = ModuleLayer.boot().findModule("jdk.net").isPresent();
        if (!canAsk) {
            journal.info("this Java has no module jdk.net: the socket file's mode alone says who may connect");
        }
    }

    /** The user at the other end who may not be served, or null. */
    String stranger(SocketChannel channel) throws IOException {
        if (!canAsk) {
            return null;
        }
        UserPrincipal peer = Kernel.peerOf(channel);
        return peer.equals(self) || peer.equals(root) ? null : peer.getName();
    }

    /** Loaded only where the module is there. */
    private static final class Kernel {
        static UserPrincipal peerOf(SocketChannel channel) throws IOException {
            return channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
        }
    }
}
