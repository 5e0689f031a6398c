package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** The result of a round of Kafka's cleaner, and its cost. */
record CleanAnswer(
        long endOffset,
        long bytesRead,
        long bytesWritten,
        long mapMessagesRead,
        long messagesRead,
        long invalidMessagesRead,
        long messagesWritten,
        double bufferUtilization,
        Stopwatch.Reading cost) {

    void writeTo(ObjectNode node) {
        node.put("end_offset", endOffset);
        node.put("bytes_read", bytesRead);
        node.put("bytes_written", bytesWritten);
        node.put("map_messages_read", mapMessagesRead);
        node.put("messages_read", messagesRead);
        node.put("invalid_messages_read", invalidMessagesRead);
        node.put("messages_written", messagesWritten);
        node.put("buffer_utilization", bufferUtilization);
        node.put("cpu_ns", cost.threadCpuNanos());
        node.put("process_cpu_ns", cost.processCpuNanos());
        node.put("wall_ns", cost.wallNanos());
    }
}
