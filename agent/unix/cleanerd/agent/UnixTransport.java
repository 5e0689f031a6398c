package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;

/** A unix socket, to which only the broker's user and root can connect. Needs Java 17; see {@link Transport}. */
final class UnixTransport implements Transport {
    private final AgentLog journal;
    private final Peers peers;

    UnixTransport(AgentLog journal) throws IOException {
        this.journal = journal;
        this.peers = new Peers(journal);
    }

    @Override
    public String name() {
        return UNIX;
    }

    @Override
    public Listener open(Path path) throws IOException {
        return SocketFile.open(path, peers, journal);
    }
}
