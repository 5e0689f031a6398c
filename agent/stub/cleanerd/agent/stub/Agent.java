package cleanerd.agent.stub;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.function.BooleanSupplier;
import java.util.jar.Attributes;
import java.util.jar.JarFile;

/**
 * The entry point that the JVM calls. It does not use Kafka, and loads the implementation from the jar with its own class
 * loader. It is compiled for Java 8, so that an older JVM reports the problem and still starts the broker.
 *
 * <p>Arguments: {@code key=value}, separated by commas. {@code jar} is the jar with the implementation; default: the jar of
 * this class. Attaching the same build again has no effect while its agent listens. Otherwise the new
 * implementation replaces the running one as soon as no swap is in progress.
 */
public final class Agent {
    private static final String BUILD = "Cleanerd-Agent-Build";
    private static volatile boolean begun;
    private static AutoCloseable running;
    private static String runningBuild;

    private Agent() {}

    public static void premain(String arguments, Instrumentation instrumentation) {
        start(arguments, instrumentation, "premain");
    }

    public static void agentmain(String arguments, Instrumentation instrumentation) {
        start(arguments, instrumentation, "agentmain");
    }

    /** Never throws: an exception in premain would keep the broker from starting. */
    private static void start(String arguments, Instrumentation instrumentation, String loadedBy) {
        try {
            if (!begun) {
                begun = true;
                replace(arguments, instrumentation, loadedBy);
                return;
            }
            // It waits for the running agent's swap, which the JVM's attach thread must not do.
            Thread thread = new Thread(() -> replace(arguments, instrumentation, loadedBy), "cleanerd-agent-start");
            thread.setDaemon(true);
            thread.start();
        } catch (Throwable e) { // no failure may stop the broker
            report(e);
        }
    }

    private static synchronized void replace(String arguments, Instrumentation instrumentation, String loadedBy) {
        try {
            String jar = jarOf(arguments);
            String build = buildOf(jar);
            if (running != null && build.equals(runningBuild) && isHealthy(running)) {
                return;
            }
            Class<?> entry = new ImplementationLoader(jar).loadClass("cleanerd.agent.Entry");
            if (running != null) { // an agent that cannot run with these arguments must not replace another one
                entry.getMethod("check", String.class).invoke(null, arguments == null ? "" : arguments);
                running.close();
                running = null;
            }
            running = (AutoCloseable) entry.getMethod("start", String.class, Instrumentation.class, String.class)
                    .invoke(null, arguments == null ? "" : arguments, instrumentation, loadedBy);
            runningBuild = build;
        } catch (Throwable e) {
            report(e);
        }
    }

    /** Whether the agent listens; true for one that cannot report it. */
    private static boolean isHealthy(AutoCloseable agent) {
        return !(agent instanceof BooleanSupplier) || ((BooleanSupplier) agent).getAsBoolean();
    }

    private static void report(Throwable e) {
        System.err.println("cleanerd agent: not started: " + e
                + (e.getCause() == null ? "" : ": " + e.getCause()) + " (Java 11 or newer is needed)");
    }

    private static String jarOf(String arguments) throws Exception {
        if (arguments != null) {
            for (String argument : arguments.split(",")) {
                if (argument.startsWith("jar=")) {
                    return argument.substring("jar=".length());
                }
            }
        }
        return new File(Agent.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getPath();
    }

    private static String buildOf(String jar) throws Exception {
        try (JarFile file = new JarFile(jar)) {
            Attributes attributes = file.getManifest().getMainAttributes();
            String build = attributes.getValue(BUILD);
            if (build == null) {
                throw new IllegalArgumentException(jar + " is not a jar of the cleanerd agent");
            }
            return build;
        }
    }
}
