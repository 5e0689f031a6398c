package cleanerd.agent;

/**
 * One batch as its header tells it.
 *
 * @param position where it begins in its file
 * @param bytes its size on the disk
 * @param base its base offset; of a batch of v0 or v1 the first offset that it can have
 * @param last its last offset
 * @param maxTimestampMs its largest timestamp
 */
record Frame(long position, long bytes, long base, long last, int leaderEpoch, int magic, int crc, int attributes,
        long maxTimestampMs, long producerId, int producerEpoch, int recordCount) {
    static final int LEGACY_BYTES = 26; // offset, size, crc, magic, attributes, timestamp
    static final int HEADER_BYTES = 61;
    static final int CHECKED_FROM = 21; // the CRC of v2 covers the attributes and all that follows

    private static final int TRANSACTIONAL = 0x10;
    private static final int CONTROL = 0x20;

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
}
