package cleanerd.agent;

import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/** A client that connects while the socket's mode is still the umask's, and one that comes when it is in place. */
public final class Early {
    private static SocketChannel early;

    private Early() {}

    /** Called when the socket is bound, and not private yet. */
    static void come(Path fresh) throws Exception {
        early = connected(fresh);
    }

    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(arguments[0]);
        try (SocketFile file = SocketFile.open(path, new Peers(new AgentLog()), new AgentLog());
                SocketChannel late = connected(path)) {
            late.write(ByteBuffer.wrap(new byte[] {7}));
            early.configureBlocking(false);
            System.out.println(early.read(ByteBuffer.allocate(1)) < 0 ? "hung up on" : "let in");
            try (SocketChannel served = file.accept()) {
                ByteBuffer told = ByteBuffer.allocate(1);
                served.configureBlocking(false);
                served.read(told);
                System.out.println(told.position() == 1 && told.get(0) == 7 ? "served" : "somebody else was served");
            }
        }
    }

    private static SocketChannel connected(Path path) throws Exception {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        channel.connect(UnixDomainSocketAddress.of(path));
        return channel;
    }
}
