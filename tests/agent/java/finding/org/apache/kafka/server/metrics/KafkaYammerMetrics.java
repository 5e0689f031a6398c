package org.apache.kafka.server.metrics;

import java.util.LinkedHashMap;
import java.util.Map;

/** A registry of gauges like Kafka's; it reports when the JVM begins to use it. */
public final class KafkaYammerMetrics {
    /** The registered gauges by name. */
    public static final Map<Name, Object> GAUGES = new LinkedHashMap<>();

    static {
        System.setProperty("touched", System.getProperty("touched", "") + " KafkaYammerMetrics");
    }

    private KafkaYammerMetrics() {}

    static Registry defaultRegistry() {
        return new Registry();
    }

    /** The name of a gauge. */
    public record Name(String group, String type) {
        String getGroup() {
            return group;
        }

        String getType() {
            return type;
        }
    }

    private static final class Registry {
        Map<Name, Object> allMetrics() {
            return GAUGES;
        }
    }
}
