package cleanerd.agent;

import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;

/** What the agent says in the broker's log, through the broker's SLF4J; so many lines a minute at most. */
final class AgentLog {
    static final int MOST_CHARACTERS = 500;

    private static final int KEPT = 20;
    private static final int LINES_A_MINUTE = 120;

    private final Deque<String> errors = new ArrayDeque<>();
    private volatile Object logger;
    private Method debug;
    private Method info;
    private Method warn;
    private long minute;
    private int lines;

    /** Looks for the logger; without one stderr is used. */
    void use(Broker broker) {
        try {
            Class<?> factory = broker.members.named("org.slf4j.LoggerFactory");
            Class<?> type = broker.members.named("org.slf4j.Logger");
            debug = type.getMethod("debug", String.class);
            info = type.getMethod("info", String.class);
            warn = type.getMethod("warn", String.class);
            logger = factory.getMethod("getLogger", String.class).invoke(null, "cleanerd.agent");
        } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
            logger = null;
        }
    }

    /** Only in the broker's log, and only where it is wanted there. */
    void debug(String text) {
        if (logger != null) {
            write(debug, text);
        }
    }

    void info(String text) {
        say(info, text);
    }

    void warn(String text) {
        remember(text);
        say(warn, text);
    }

    /** As {@link #warn}, where there may be no memory for it. */
    void tryToWarn(String text) {
        try {
            warn(text);
        } catch (Throwable e) {
            logger = null; // stderr needs less
        }
    }

    /** The last warnings, oldest first. */
    synchronized List<String> errors() {
        return List.copyOf(errors);
    }

    private synchronized void remember(String text) {
        errors.addLast(Fields.shortened(text, MOST_CHARACTERS));
        if (errors.size() > KEPT) {
            errors.removeFirst();
        }
    }

    private synchronized void say(Method level, String text) {
        long now = System.nanoTime() / 60_000_000_000L;
        if (now != minute) {
            int dropped = lines - LINES_A_MINUTE;
            minute = now;
            lines = 0;
            if (dropped > 0) {
                write(warn, dropped + " more lines were not logged");
            }
        }
        if (++lines <= LINES_A_MINUTE) {
            write(level, text);
        }
    }

    private void write(Method level, String text) {
        String line = "cleanerd agent: " + Fields.shortened(text, MOST_CHARACTERS).replaceAll("\\p{Cntrl}", "?");
        try {
            if (logger != null) {
                level.invoke(logger, line);
                return;
            }
        } catch (ReflectiveOperationException | RuntimeException e) {
            logger = null;
        }
        System.err.println(line);
    }
}
