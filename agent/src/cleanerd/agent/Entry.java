package cleanerd.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The life of the agent: wait for the broker, listen, and stop when another build takes over. */
public final class Entry implements AutoCloseable {
    private static final long LOOK_MS = 250;
    private static final long LOOK_LATER_MS = 5_000;
    private static final int LOOKS = 1200; // five minutes, then less often

    private final Options options;
    private final Instrumentation instrumentation;
    private final String loadedBy;
    private final AgentLog journal = new AgentLog();
    private Thread removal;
    private SocketFile socket;
    private Server server;
    private boolean closed;

    private Entry(Options options, Instrumentation instrumentation, String loadedBy) {
        this.options = options;
        this.instrumentation = instrumentation;
        this.loadedBy = loadedBy;
    }

    /** Called by the stub, with the agent's arguments; comes back at once. */
    public static AutoCloseable start(String arguments, Instrumentation instrumentation, String loadedBy) {
        Entry entry = new Entry(Options.parse(arguments), instrumentation, loadedBy);
        Thread thread = new Thread(entry::run, "cleanerd-agent");
        thread.setDaemon(true);
        thread.start();
        return entry;
    }

    private void run() {
        try {
            Finder finder = new Finder(instrumentation);
            for (int looks = 0; !isClosed(); looks++) {
                List<Object> managers = finder.search();
                if (!managers.isEmpty()) {
                    Broker broker = new Broker(managers, options.allowUnknownVersion());
                    if (options.socket() != null || !broker.liveLogDirs().isEmpty()) {
                        listen(broker, finder.foundVia());
                        return;
                    }
                }
                Thread.sleep(looks < LOOKS ? LOOK_MS : LOOK_LATER_MS);
            }
        } catch (Throwable e) { // the broker goes on without an agent
            journal.warn("not listening: " + e);
        }
    }

    private synchronized void listen(Broker broker, String foundVia) throws IOException {
        if (closed) {
            return;
        }
        journal.use(broker);
        Path path = options.socket() != null ? options.socket() : SocketFile.defaultIn(broker.liveLogDirs().get(0));
        socket = SocketFile.open(path);
        removal = new Thread(this::removeSocket);
        Runtime.getRuntime().addShutdownHook(removal);
        Map<String, Object> identity = new LinkedHashMap<>();
        identity.put("build", Build.ID);
        identity.put("loaded", loadedBy);
        identity.put("found_via", foundVia);
        identity.put("socket", path.toString());
        server = new Server(socket.listener(), new Requests(broker, journal, identity), journal);
        server.start();
        journal.info("build " + Build.ID + " listens on " + path + (broker.capable() ? "" : ", but cannot swap on Kafka "
                + broker.version + " " + broker.members.missing));
    }

    private synchronized boolean isClosed() {
        return closed;
    }

    @Override
    public synchronized void close() throws IOException {
        closed = true;
        if (server != null) {
            server.close();
            Runtime.getRuntime().removeShutdownHook(removal);
            removeSocket();
        }
    }

    private void removeSocket() {
        try {
            socket.close();
        } catch (IOException e) {
            journal.warn("the socket stays: " + e);
        }
    }
}
