package cleanerd.agent;

import java.io.IOException;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Queue;
import kafka.log.LogManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/** Prints the agent's findings in JVMs with these classes, and its calls of them; one line each, NAME=VALUE. */
final class Finding {
    private static final Class<?> HELPERS = org.apache.kafka.storage.internals.log.LogManager.class;

    private Finding() {}

    public static void main(String[] arguments) throws Exception {
        say("none loaded", search(KafkaYammerMetrics.class).size());
        say("helpers only", search(KafkaYammerMetrics.class, HELPERS).size());
        say("touched by then", System.getProperty("touched", "").trim());

        TopicPartition both = new TopicPartition("both", 0);
        TopicPartition second = new TopicPartition("second", 0);
        LogManager one = new LogManager(Map.of(both, "both of one"));
        LogManager two = new LogManager(Map.of(both, "both of two", second, "second of two"));
        register("kafka.log", "LogManager", new LogManager.Gauge(one));
        say("helpers first", search(HELPERS, LogManager.class, KafkaYammerMetrics.class).equals(List.of(one)));
        say("helpers last", search(KafkaYammerMetrics.class, LogManager.class, HELPERS).equals(List.of(one)));

        Broker broker = new Broker(List.of(one, two), false);
        say("in both", broker.log("both", 0).log);
        say("in the second", broker.log("second", 0).log);
        say("its manager", broker.log("second", 0).manager == two);
        say("in none", codeOf(broker, "nobody's"));
        say("directories", broker.liveLogDirs());
        say("of a bad disk", codeOf(broker, "on a bad disk"));
        Method pause = Reflect.method(LogManager.class, "abortAndPauseCleaning", TopicPartition.class);
        try {
            Reflect.call(pause, one, both);
        } catch (IllegalArgumentException e) {
            say("what it throws", e.getMessage());
        }
        for (Object full : List.of(Optional.of(7L), OptionalLong.of(7), new scala.Option(7L))) {
            say(full.getClass().getName(), broker.values.orNull(full));
        }
        for (Object empty : List.of(Optional.empty(), OptionalLong.empty(), new scala.Option(null))) {
            say("empty " + empty.getClass().getName(), broker.values.orNull(empty));
        }
        say("a list of Java", broker.values.list(List.of(1, 2)));
        say("a list of Scala", broker.values.list(scalas(1, 2)));
    }

    private static void say(String name, Object value) {
        System.out.println(name + "=" + value);
    }

    private static List<Object> search(Class<?>... loaded) throws IOException {
        Instrumentation jvm = (Instrumentation) Proxy.newProxyInstance(Finding.class.getClassLoader(),
                new Class<?>[] {Instrumentation.class},
                (proxy, method, values) -> method.getName().equals("getAllLoadedClasses") ? loaded : null);
        return new Finder(jvm).search();
    }

    private static void register(String group, String type, Object gauge) {
        KafkaYammerMetrics.GAUGES.put(new KafkaYammerMetrics.Name(group, type), gauge);
    }

    private static String codeOf(Broker broker, String topic) {
        try {
            return "found " + broker.log(topic, 0).log;
        } catch (Refusal e) {
            return e.code();
        } catch (IOException e) {
            return "IOException: " + e.getMessage();
        }
    }

    private static scala.collection.IterableOnce scalas(Object... elements) {
        Queue<Object> left = new ArrayDeque<>(Arrays.asList(elements));
        return () -> new scala.collection.Iterator() {
            @Override
            public boolean hasNext() {
                return !left.isEmpty();
            }

            @Override
            public Object next() {
                return left.remove();
            }
        };
    }
}
