package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;

/** TCP on 127.0.0.1, for a Java without unix sockets. All users of the host can connect, so clients need a proof. */
final class Loopback implements Transport {
    private final AgentLog journal;

    Loopback(AgentLog journal) {
        this.journal = journal;
    }

    @Override
    public String name() {
        return LOOPBACK;
    }

    @Override
    public Listener open(Path path) throws IOException {
        return LoopbackListener.open(path, journal);
    }
}
