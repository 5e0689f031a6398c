package cleanerd.agent;

import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.regex.Pattern;

/** Writes the agent's messages to the broker's log by its SLF4J, at most {@value #LINES_PER_MINUTE} lines per minute. */
final class AgentLog {
    static final int MOST_CHARACTERS = 500;

    private static final int MOST_ERRORS = 20;
    private static final int LINES_PER_MINUTE = 120;
    private static final Pattern CONTROL = Pattern.compile("\\p{Cntrl}");

    private final Deque<String> errors = new ArrayDeque<>();
    private volatile Object logger;
    private Method debug;
    private Method info;
    private Method warn;
    private long minute;
    private int lines;

    /** Finds the broker's logger. Without one, messages go to stderr. */
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

    /** Written only to the broker's log, and only if its settings enable this level. */
    void debug(String text) {
        if (logger != null) {
            write(debug, text);
        }
    }

    void info(String text) {
        log(info, text);
    }

    void warn(String text) {
        remember(text);
        log(warn, text);
    }

    /** As {@link #warn}, but never throws, not even for lack of memory. */
    void tryToWarn(String text) {
        try {
            warn(text);
        } catch (Throwable e) {
            logger = null; // stderr needs less memory
        }
    }

    /** The last warnings, oldest first. */
    synchronized List<String> errors() {
        return List.copyOf(errors);
    }

    private synchronized void remember(String text) {
        errors.addLast(Fields.shortened(text, MOST_CHARACTERS));
        if (errors.size() > MOST_ERRORS) {
            errors.removeFirst();
        }
    }

    private synchronized void log(Method level, String text) {
        long now = System.nanoTime() / 60_000_000_000L;
        if (now != minute) {
            int dropped = lines - LINES_PER_MINUTE;
            minute = now;
            lines = 0;
            if (dropped > 0) {
                write(warn, dropped + " more lines were not logged");
            }
        }
        if (++lines <= LINES_PER_MINUTE) {
            write(level, text);
        }
    }

    private void write(Method level, String text) {
        String line = "cleanerd agent: " + CONTROL.matcher(Fields.shortened(text, MOST_CHARACTERS)).replaceAll("?");
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
