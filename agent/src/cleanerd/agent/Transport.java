package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Path;

/** How clients connect: by a unix socket if this Java supports it, otherwise by TCP on the loopback. */
interface Transport {
    String UNIX = "unix";
    String LOOPBACK = "loopback";
    int FIRST_WITH_UNIX = 17;

    /** The name in {@code info}. */
    String name();

    /** Listens, and creates the file {@code path} for clients. Fails if another process uses an existing file. */
    Listener open(Path path) throws IOException;

    /** The transport named {@code wanted}; null: unix if this Java supports it. */
    static Transport of(String wanted, AgentLog journal) throws IOException {
        boolean hasUnix = Runtime.version().feature() >= FIRST_WITH_UNIX;
        if (LOOPBACK.equals(wanted) || wanted == null && !hasUnix) {
            return new Loopback(journal);
        }
        if (!hasUnix) {
            throw new IOException("transport=unix: this is Java " + Runtime.version().feature()
                    + ", which has no unix sockets; leave the option out, or use Java " + FIRST_WITH_UNIX);
        }
        try { // by name, because an older Java can neither compile nor load this class
            return (Transport) Class.forName("cleanerd.agent.UnixTransport").getDeclaredConstructor(AgentLog.class)
                    .newInstance(journal);
        } catch (ReflectiveOperationException e) {
            throw new IOException("the unix socket's transport could not be created: " + e + ": " + e.getCause(), e);
        }
    }
}
