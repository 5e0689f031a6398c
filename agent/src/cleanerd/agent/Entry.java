package cleanerd.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;

/**
 * The agent's life cycle: it waits for the broker, listens, and stops when another build replaces it. One thread checks
 * the agent's state every second and repairs it, so that the broker need not be restarted.
 */
public final class Entry implements AutoCloseable, BooleanSupplier {
    private static final long SEARCH_MS = 250;
    private static final long SEARCH_LATER_MS = 5_000;
    private static final int SEARCHES = 1200; // five minutes, then less often
    private static final long WATCH_MS = 1_000;
    private static final long LISTEN_AGAIN_MS = 3_000;
    private static final long END_MS = 2_000;

    private final Options options;
    private final Instrumentation instrumentation;
    private final String loadedBy;
    private final AgentLog journal = new AgentLog();
    private final Map<String, Object> identity = new ConcurrentHashMap<>();
    private volatile Thread maintainer;
    private volatile Server server;
    private Transport transport;
    private volatile boolean closed;
    private volatile Broker broker;
    private Thread removal;
    private String problem = "";

    private Entry(Options options, Instrumentation instrumentation, String loadedBy) {
        this.options = options;
        this.instrumentation = instrumentation;
        this.loadedBy = loadedBy;
    }

    /** Called by the stub, with the agent's arguments. Returns at once. */
    public static AutoCloseable start(String arguments, Instrumentation instrumentation, String loadedBy) {
        Entry entry = new Entry(Options.parse(arguments), instrumentation, loadedBy);
        entry.maintainer = Threads.start("cleanerd-agent", entry::run);
        return entry;
    }

    /** Throws if an agent could not listen with these arguments. The stub calls it before it stops a running agent. */
    public static void check(String arguments) throws IOException {
        Options options = Options.parse(arguments);
        Transport.of(options.transport(), new AgentLog());
        if (options.socket() != null) {
            Place.requirePrivate(options.socket());
        }
    }

    /**
     * Whether the stub keeps this agent instead of starting it again with other arguments: it is starting, or it listens
     * and can swap. An interface of Java, because the stub knows no class of the implementation.
     */
    @Override
    public boolean getAsBoolean() {
        Thread thread = maintainer;
        Server serving = server;
        return !closed && thread != null && thread.isAlive()
                && (serving == null || serving.listens() && broker.capable());
    }

    private void run() {
        for (int searches = 0; !closed; searches++) {
            long wait = LISTEN_AGAIN_MS;
            try {
                wait = maintain(searches);
            } catch (Throwable e) { // the broker runs without its agent, which tries again
                warn(e);
            }
            Threads.pause(wait);
        }
        // Another build has replaced this one, which still retries to end its pauses.
        for (Server former = server; former != null && former.retryPauses(); ) {
            Threads.pause(WATCH_MS);
        }
    }

    /** One step of the life cycle. Returns the time until the next one, in ms. */
    private synchronized long maintain(int searches) throws IOException {
        if (closed) {
            return 0;
        }
        if (server == null) {
            Finder finder = new Finder(instrumentation);
            List<Object> managers = finder.search();
            long later = searches < SEARCHES ? SEARCH_MS : SEARCH_LATER_MS;
            if (managers.isEmpty()) {
                return later;
            }
            broker = new Broker(managers, options.allowUnknownVersion());
            if (options.socket() == null && broker.liveLogDirs().isEmpty()) {
                return later;
            }
            begin(finder.foundVia());
        }
        broker.runSelfTest(journal);
        try {
            if (!server.listens()) {
                listen();
            }
        } finally {
            server.watch();
        }
        return WATCH_MS;
    }

    private void begin(String foundVia) throws IOException {
        journal.use(broker);
        if (broker.failures == null) {
            journal.warn("this agent cannot report failed log directories to Kafka " + broker.release.version() + ": after an "
                    + "incomplete swap the log stays online; restart the broker then");
        }
        transport = Transport.of(options.transport(), journal);
        identity.put("transport", transport.name());
        identity.put("build", Build.ID);
        identity.put("loaded", loadedBy);
        identity.put("found_via", foundVia);
        Server serving = new Server(new Requests(broker, journal, identity), journal);
        removal = new Thread(() -> removeSocket(serving));
        Runtime.getRuntime().addShutdownHook(removal);
        server = serving;
    }

    private void listen() throws IOException {
        Path path = options.socket();
        if (path == null) {
            List<Path> dirs = broker.liveLogDirs();
            if (dirs.isEmpty()) {
                throw new IOException("no log directory is online");
            }
            path = Place.defaultIn(dirs.get(0));
        } else {
            Place.requirePrivate(path);
        }
        if (server.isAt(path)) {
            return; // only the accepting thread is missing, which watch() starts
        }
        Listener listener = transport.open(path);
        server.listenOn(listener);
        identity.put("socket", path.toString());
        problem = "";
        journal.info("build " + Build.ID + " listens on " + listener.address()
                + (broker.capable() ? "" : ", but cannot swap: " + broker.whyIncapable()));
    }

    /** Warns once per problem, not once per try. */
    private void warn(Throwable e) {
        try {
            String text = "not listening, trying again: " + e;
            if (!text.equals(problem)) {
                problem = text;
                journal.warn(text);
            }
        } catch (Throwable another) {
            problem = ""; // there is no memory for the message
        }
    }

    /** Waits until no request is in progress, without a limit: another build must not swap at the same time. */
    @Override
    public void close() throws IOException {
        Server serving = server;
        if (serving != null) {
            serving.finish(); // not synchronized, so that run() still watches the connections
        }
        synchronized (this) {
            closed = true;
            if (server != null) {
                server.close();
                try {
                    Runtime.getRuntime().removeShutdownHook(removal);
                } catch (IllegalStateException e) {
                    return; // the broker is stopping
                }
            }
        }
    }

    /** Runs when the JVM ends. It does not wait for a maintainer that hangs with a disk, nor for a self-test. */
    private void removeSocket(Server serving) {
        closed = true;
        try {
            Threads.start("cleanerd-agent-end", () -> {
                try {
                    synchronized (this) { // not while it begins to listen again
                        serving.closeSocket();
                    }
                } catch (IOException | RuntimeException e) {
                    journal.warn("the socket's file was not removed: " + e);
                }
            }).join(END_MS);
        } catch (InterruptedException | OutOfMemoryError e) {
            journal.tryToWarn("the socket's file was not removed: " + e);
        }
    }
}
