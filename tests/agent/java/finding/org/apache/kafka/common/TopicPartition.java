package org.apache.kafka.common;

/** The name of a partition, as Kafka's; it tells when the JVM begins to use it. */
public record TopicPartition(String topic, int partition) {
    static {
        System.setProperty("touched", System.getProperty("touched", "") + " TopicPartition");
    }
}
