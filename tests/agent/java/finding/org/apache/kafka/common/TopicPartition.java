package org.apache.kafka.common;

/** The name of a partition like Kafka's; it reports when the JVM begins to use it. */
public record TopicPartition(String topic, int partition) {
    static {
        System.setProperty("touched", System.getProperty("touched", "") + " TopicPartition");
    }
}
