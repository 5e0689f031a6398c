package cleanerd.agent;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** A segment group of a swap request: neighbouring segments and the staged files of the segment that replaces them. */
final class Group {
    /** Kinds of file, in the order of their renames to {@code .cleaned}: the log is last. */
    static final List<String> KINDS = List.of("timeindex", "index", "txnindex", "log");

    /** Digits of a base offset in a file name. */
    private static final int DIGITS = 20;

    private static final Pattern NAME = Pattern.compile("(?!\\.)[A-Za-z0-9_.-]{1,200}");

    private final long base;
    private final long end;
    private final List<SegmentFacts> sources;
    private final Map<String, StagedFile> files;

    /**
     * @param end base offset of the segment that follows the last source
     * @param files by kind: log, index, timeindex and optionally txnindex
     */
    Group(long base, long end, List<SegmentFacts> sources, Map<String, StagedFile> files) {
        this.base = base;
        this.end = end;
        this.sources = sources;
        this.files = files;
    }

    /** A file in the plan's staging directory: its name, size and CRC-32C. */
    static final class StagedFile {
        private final String name;
        private final long size;
        private final int crc;

        StagedFile(String name, long size, int crc) {
            this.name = name;
            this.size = size;
            this.crc = crc;
        }

        String name() {
            return name;
        }

        long size() {
            return size;
        }

        int crc() {
            return crc;
        }
    }

    static Group of(Fields fields) throws Refusal {
        long base = fields.number("base", Long.MAX_VALUE);
        long end = fields.number("end", Long.MAX_VALUE);
        List<SegmentFacts> sources = new ArrayList<>();
        for (Fields source : fields.objects("sources")) {
            sources.add(SegmentFacts.of(source));
        }
        Map<String, StagedFile> files = files(fields.object("files"), fields.object("sizes"), fields.object("crc32c"));
        fields.end();
        if (sources.get(0).base() != base) {
            throw new Refusal("bad_plan", "the first source of group " + base + " begins at another offset, "
                    + sources.get(0).base());
        }
        long previous = -1;
        for (SegmentFacts source : sources) {
            if (source.base() <= previous || source.base() >= end) {
                throw new Refusal("bad_plan", "the sources of group " + base + " do not ascend below its end");
            }
            previous = source.base();
        }
        return new Group(base, end, List.copyOf(sources), files);
    }

    private static Map<String, StagedFile> files(Fields names, Fields sizes, Fields crcs) throws Refusal {
        Map<String, StagedFile> result = new LinkedHashMap<>();
        Set<String> seen = new HashSet<>();
        for (String kind : KINDS) {
            String name = kind.equals("txnindex") ? names.textOrNull(kind) : names.text(kind);
            if (name == null) {
                continue;
            }
            if (!NAME.matcher(name).matches() || !seen.add(name)) {
                throw new Refusal("bad_path", "'" + Fields.shortened(name)
                        + "' is not a valid name of a staged file, or occurs twice");
            }
            result.put(kind, new StagedFile(name, sizes.number(kind, Integer.MAX_VALUE),
                    (int) crcs.number(kind, 0xFFFF_FFFFL)));
        }
        names.end();
        sizes.end();
        crcs.end();
        return result;
    }

    /** The name of the broker's file of this kind and base offset. */
    static String brokerName(long base, String kind) {
        String digits = Long.toString(base); // String.format takes a hundred times as long
        return "0".repeat(Math.max(0, DIGITS - digits.length())) + digits + "." + kind;
    }

    long base() {
        return base;
    }

    long end() {
        return end;
    }

    List<SegmentFacts> sources() {
        return sources;
    }

    Map<String, StagedFile> files() {
        return files;
    }
}
