package cleanerd.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;

/**
 * The life of the agent: wait for the broker, listen, and stop when another build takes over. One thread looks every
 * second whether all is as it should be, and puts it right: a broker is not restarted for its agent's sake.
 */
public final class Entry implements AutoCloseable, BooleanSupplier {
    private static final long LOOK_MS = 250;
    private static final long LOOK_LATER_MS = 5_000;
    private static final int LOOKS = 1200; // five minutes, then less often
    private static final long WATCH_MS = 1_000;
    private static final long LISTEN_AGAIN_MS = 3_000;
    private static final long END_MS = 2_000;

    private final Options options;
    private final Instrumentation instrumentation;
    private final String loadedBy;
    private final AgentLog journal = new AgentLog();
    private final Map<String, Object> identity = new ConcurrentHashMap<>();
    private volatile Thread keeper;
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

    /** Called by the stub, with the agent's arguments; comes back at once. */
    public static AutoCloseable start(String arguments, Instrumentation instrumentation, String loadedBy) {
        Entry entry = new Entry(Options.parse(arguments), instrumentation, loadedBy);
        entry.keeper = Threads.start("cleanerd-agent", entry::run);
        return entry;
    }

    /** Throws where nothing would listen by these arguments: the stub asks before it ends an agent that does. */
    public static void check(String arguments) throws IOException {
        Options options = Options.parse(arguments);
        Transport.of(options.transport(), new AgentLog());
        if (options.socket() != null) {
            Place.requirePrivate(options.socket());
        }
    }

    /**
     * Whether this agent can be left alone: it is on its way, or it listens and can swap; what it cannot, it may with
     * other arguments. The stub asks, who knows no class of ours.
     */
    @Override
    public boolean getAsBoolean() {
        Thread thread = keeper;
        Server serving = server;
        return !closed && thread != null && thread.isAlive()
                && (serving == null || serving.listens() && broker.capable());
    }

    private void run() {
        for (int looks = 0; !closed; looks++) {
            long wait = LISTEN_AGAIN_MS;
            try {
                wait = keep(looks);
            } catch (Throwable e) { // the broker goes on without an agent, and the agent tries again
                tell(e);
            }
            Threads.pause(wait);
        }
        // Another build has taken over. What this one could not resume it goes on trying to.
        for (Server left = server; left != null && left.keepsPauses(); ) {
            Threads.pause(WATCH_MS);
        }
    }

    /** Whatever is to be done now; the time until the next look, in ms. */
    private synchronized long keep(int looks) throws IOException {
        if (closed) {
            return 0;
        }
        if (server == null) {
            Finder finder = new Finder(instrumentation);
            List<Object> managers = finder.search();
            long later = looks < LOOKS ? LOOK_MS : LOOK_LATER_MS;
            if (managers.isEmpty()) {
                return later;
            }
            broker = new Broker(managers, options.allowUnknownVersion());
            if (options.socket() == null && broker.liveLogDirs().isEmpty()) {
                return later;
            }
            begin(finder.foundVia());
        }
        broker.tryOut(journal);
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
            journal.warn("Kafka " + broker.release.version() + " learns of failed log directories in a way that this "
                    + "agent does not know: a swap that stops half-way leaves the log online until the broker is restarted");
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
            return; // only nobody accepts, which watch() sees to
        }
        Listener listener = transport.open(path);
        server.listenOn(listener);
        identity.put("socket", path.toString());
        problem = "";
        journal.info("build " + Build.ID + " listens on " + listener.address()
                + (broker.capable() ? "" : ", but cannot swap: " + broker.whyIncapable()));
    }

    /** Once for each problem, not once for each try. */
    private void tell(Throwable e) {
        try {
            String text = "not listening, trying again: " + e;
            if (!text.equals(problem)) {
                problem = text;
                journal.warn(text);
            }
        } catch (Throwable nothing) {
            problem = ""; // no memory even for that
        }
    }

    /** Ends when no request is at work any more, however long that takes: nobody is to swap beside a swap. */
    @Override
    public void close() throws IOException {
        Server serving = server;
        if (serving != null) {
            serving.finish(); // not synchronized: run() goes on to watch its connections
        }
        synchronized (this) {
            closed = true;
            if (server != null) {
                server.close();
                try {
                    Runtime.getRuntime().removeShutdownHook(removal);
                } catch (IllegalStateException e) {
                    return; // the broker stops anyway
                }
            }
        }
    }

    /** The JVM ends when this does: it does not wait for a keeper that hangs with a disk, nor for a trial. */
    private void removeSocket(Server serving) {
        closed = true;
        try {
            Threads.start("cleanerd-agent-end", () -> {
                try {
                    synchronized (this) { // not while it listens anew
                        serving.closeSocket();
                    }
                } catch (IOException | RuntimeException e) {
                    journal.warn("the socket stays: " + e);
                }
            }).join(END_MS);
        } catch (InterruptedException | OutOfMemoryError e) {
            journal.tryToWarn("the socket stays: " + e);
        }
    }
}
