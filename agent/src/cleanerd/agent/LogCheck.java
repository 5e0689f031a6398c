package cleanerd.agent;

/** The rules for the batches of a staged log among themselves; all its refusals are {@code bad_log}. */
final class LogCheck {
    private static final int CODEC_MASK = 0x07;
    private static final int LAST_CODEC = 4;

    private final Group group;
    private long previousLast;
    private long batches;

    LogCheck(Group group) {
        this.group = group;
        this.previousLast = group.base() - 1;
    }

    void accept(Frame frame) throws Refusal {
        require(frame.magic() == 2, frame, "it is not of format v2");
        require(frame.base() > previousLast, frame, "it does not begin above the one before");
        require(frame.last() >= frame.base(), frame, "it ends before it begins");
        require(frame.last() < group.end(), frame, "it reaches beyond the group");
        require(frame.last() - group.base() <= Integer.MAX_VALUE, frame, "an index could not hold its offset");
        require((frame.attributes() & CODEC_MASK) <= LAST_CODEC, frame, "its codec is unknown");
        long most = frame.last() - frame.base() + 1;
        require(frame.recordCount() >= 0 && frame.recordCount() <= most, frame, "its number of records cannot be");
        require(frame.recordCount() > 0 || frame.bytes() == Frame.HEADER_BYTES, frame, "it has no records, but bytes");
        previousLast = frame.last();
        batches++;
    }

    void end() throws Refusal {
        if (batches == 0) {
            throw new Refusal("bad_log", "it holds no batch");
        }
    }

    /** The last offset so far. */
    long last() {
        return previousLast;
    }

    long batches() {
        return batches;
    }

    private static void require(boolean holds, Frame frame, String what) throws Refusal {
        if (!holds) {
            throw new Refusal("bad_log", "the batch " + frame.base() + " to " + frame.last() + " at position "
                    + frame.position() + ": " + what);
        }
    }
}
