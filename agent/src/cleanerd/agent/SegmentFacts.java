package cleanerd.agent;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/** Facts about a segment when it was read (U-3). Another segment or another content has other facts. */
final class SegmentFacts {
    private final long base;
    private final long size;
    private final long inode;
    private final long modifiedMs;

    SegmentFacts(long base, long size, long inode, long modifiedMs) {
        this.base = base;
        this.size = size;
        this.inode = inode;
        this.modifiedMs = modifiedMs;
    }

    static SegmentFacts of(Fields fields) throws Refusal {
        SegmentFacts facts = new SegmentFacts(
                fields.number("base", Long.MAX_VALUE),
                fields.number("size", Integer.MAX_VALUE),
                fields.number("ino", Long.MAX_VALUE),
                fields.number("mtime_ms", Long.MAX_VALUE));
        fields.end();
        return facts;
    }

    Map<String, Object> toJson() {
        Map<String, Object> json = new LinkedHashMap<>();
        json.put("base", base);
        json.put("size", size);
        json.put("ino", inode);
        json.put("mtime_ms", modifiedMs);
        return json;
    }

    long base() {
        return base;
    }

    long size() {
        return size;
    }

    long inode() {
        return inode;
    }

    long modifiedMs() {
        return modifiedMs;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof SegmentFacts)) {
            return false;
        }
        SegmentFacts facts = (SegmentFacts) other;
        return base == facts.base && size == facts.size && inode == facts.inode && modifiedMs == facts.modifiedMs;
    }

    @Override
    public int hashCode() {
        return Objects.hash(base, size, inode, modifiedMs);
    }
}
