package cleanerd.agent;

import java.util.LinkedHashMap;
import java.util.Map;

/** A segment as somebody has read it (U-3): only the same segment with the same content has the same facts. */
record SegmentFacts(long base, long size, long inode, long modifiedMs) {
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
}
