package cleanerd.judge;

/** One round of Kafka's own cleaner. {@code dirty} and {@code bound} as the cleaner manager would pass them. */
record CleanRequest(
        long dirty, long bound, int mapBytes, double loadFactor, int ioBufferBytes, int maxIoBufferBytes) {}
