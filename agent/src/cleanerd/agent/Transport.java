package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;

/** A way from cleanerd to the agent: a unix socket where this Java has them, from 16 on, else TCP on the loopback. */
interface Transport {
    String UNIX = "unix";
    String LOOPBACK = "loopback";
    int FIRST_WITH_UNIX = 17;

    /** What {@code info} calls it. */
    String name();

    /** Listens, and puts the file that leads there at {@code path}; nobody else's that is in use is replaced. */
    Listener open(Path path) throws IOException;

    /** The one that is {@code wanted}, null: the best that this Java has. */
    static Transport of(String wanted, AgentLog journal) throws IOException {
        boolean able = Runtime.version().feature() >= FIRST_WITH_UNIX;
        if (LOOPBACK.equals(wanted) || wanted == null && !able) {
            return new Loopback(journal);
        }
        if (!able) {
            throw new IOException("transport=unix: this is Java " + Runtime.version().feature()
                    + ", which has no unix sockets; leave the option out, or use Java " + FIRST_WITH_UNIX);
        }
        try { // by its name: no older Java may load this class, and none could compile it
            return (Transport) Class.forName("cleanerd.agent.UnixTransport").getDeclaredConstructor(AgentLog.class)
                    .newInstance(journal);
        } catch (ReflectiveOperationException e) {
            throw new IOException("there is no unix socket to be had: " + e + ": " + e.getCause(), e);
        }
    }
}
