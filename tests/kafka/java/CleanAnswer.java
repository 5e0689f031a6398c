package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** What Kafka's cleaner said of a round, and what it cost. */
record CleanAnswer(
        long endOffset,
        long bytesRead,
        long bytesWritten,
        long mapMessagesRead,
        long messagesRead,
        long invalidMessagesRead,
        long messagesWritten,
        double bufferUtilization,
        long cpuNanos,
        long wallNanos) {

    void writeTo(ObjectNode node) {
        node.put("end_offset", endOffset);
        node.put("bytes_read", bytesRead);
        node.put("bytes_written", bytesWritten);
        node.put("map_messages_read", mapMessagesRead);
        node.put("messages_read", messagesRead);
        node.put("invalid_messages_read", invalidMessagesRead);
        node.put("messages_written", messagesWritten);
        node.put("buffer_utilization", bufferUtilization);
        node.put("cpu_ns", cpuNanos);
        node.put("wall_ns", wallNanos);
    }
}
