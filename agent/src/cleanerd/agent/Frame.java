package cleanerd.agent;

/** The header of one batch. */
final class Frame {
    static final int LEGACY_BYTES = 26; // offset, size, crc, magic, attributes, timestamp
    static final int HEADER_BYTES = 61;
    static final int CHECKED_FROM = 21; // the CRC of v2 covers the bytes from the attributes on

    private static final int TRANSACTIONAL = 0x10;
    private static final int CONTROL = 0x20;

    private final long position;
    private final long bytes;
    private final long base;
    private final long last;
    private final int leaderEpoch;
    private final int magic;
    private final int crc;
    private final int attributes;
    private final long maxTimestampMs;
    private final long producerId;
    private final int producerEpoch;
    private final int recordCount;

    /**
     * @param position of its first byte in the file
     * @param bytes its size in the file
     * @param base its base offset; for v0 and v1 the lowest offset that it can have
     * @param last its last offset
     * @param maxTimestampMs its largest timestamp
     */
    Frame(long position, long bytes, long base, long last, int leaderEpoch, int magic, int crc, int attributes,
            long maxTimestampMs, long producerId, int producerEpoch, int recordCount) {
        this.position = position;
        this.bytes = bytes;
        this.base = base;
        this.last = last;
        this.leaderEpoch = leaderEpoch;
        this.magic = magic;
        this.crc = crc;
        this.attributes = attributes;
        this.maxTimestampMs = maxTimestampMs;
        this.producerId = producerId;
        this.producerEpoch = producerEpoch;
        this.recordCount = recordCount;
    }

    boolean transactional() {
        return (attributes & TRANSACTIONAL) != 0;
    }

    boolean control() {
        return (attributes & CONTROL) != 0;
    }

    boolean sameKindAs(Frame other) {
        return leaderEpoch == other.leaderEpoch && producerId == other.producerId
                && producerEpoch == other.producerEpoch && transactional() == other.transactional()
                && control() == other.control();
    }

    long position() {
        return position;
    }

    long bytes() {
        return bytes;
    }

    long base() {
        return base;
    }

    long last() {
        return last;
    }

    int leaderEpoch() {
        return leaderEpoch;
    }

    int magic() {
        return magic;
    }

    int crc() {
        return crc;
    }

    int attributes() {
        return attributes;
    }

    long maxTimestampMs() {
        return maxTimestampMs;
    }

    long producerId() {
        return producerId;
    }

    int producerEpoch() {
        return producerEpoch;
    }

    int recordCount() {
        return recordCount;
    }
}
