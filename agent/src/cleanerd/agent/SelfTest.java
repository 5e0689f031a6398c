package cleanerd.agent;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import java.util.zip.CRC32C;

/**
 * The self-test: one swap before the agent changes any log of the broker. The broker's own classes create a log in a
 * temporary directory, the agent's own code swaps in it, and {@link SelfTestCheck} checks the result. So a release whose
 * members have the same names and another meaning is detected where no data can be lost.
 */
final class SelfTest {
    static final String TOPIC = "cleanerd-self-test";

    private static final long NEEDED_BYTES = 16L << 20;
    private static final long DELETE_DELAY_MS = 60_000;
    private static final Map<String, String> SETTINGS = Map.of("cleanup.policy", "compact", "segment.index.bytes", "4096",
            "index.interval.bytes", "1", "file.delete.delay.ms", Long.toString(DELETE_DELAY_MS));
    private static final String PLAN = "self-test";
    private static final String DIRECTORY = "cleanerd-self-test-";
    private static final List<Long> RETAINED = List.of(1L, 3L, 4L, 5L); // of 0 to 2 and 3 to 5; offset 6 is in the active segment
    private static final long SECOND = 3;
    private static final long END = 6;

    private final Broker broker;
    private final AgentLog journal;

    /** The outcome of a self-test. */
    static final class Result {
        private final String state;
        private final String detail;

        /**
         * @param state passed, failed, or not_run, which shows nothing about the release
         * @param detail the checks that passed, or the failure
         */
        Result(String state, String detail) {
            this.state = state;
            this.detail = detail;
        }

        boolean passed() {
            return state.equals("passed");
        }

        boolean failed() {
            return state.equals("failed");
        }

        String state() {
            return state;
        }

        String detail() {
            return detail;
        }

        @Override
        public boolean equals(Object other) {
            if (!(other instanceof Result)) {
                return false;
            }
            Result result = (Result) other;
            return state.equals(result.state) && detail.equals(result.detail);
        }

        @Override
        public int hashCode() {
            return Objects.hash(state, detail);
        }
    }

    SelfTest(Broker broker, AgentLog journal) {
        this.broker = broker;
        this.journal = journal;
    }

    Result run() {
        Path directory = null;
        try {
            directory = temporaryDirectory();
            Path partition = Files.createDirectory(directory.resolve(TOPIC + "-0"));
            try (SelfTestLog log = SelfTestLog.create(broker, partition, TOPIC, SETTINGS)) {
                fill(log);
                return swapIn(log);
            }
        } catch (Throwable e) { // no failure here may stop the broker
            return new Result("not_run", "it could not be prepared: " + textOf(e));
        } finally {
            remove(directory);
        }
    }

    /** A new directory in {@code java.io.tmpdir}; an IOException if that is in a log directory or has too little space. */
    private Path temporaryDirectory() throws IOException {
        Path parent = Path.of(System.getProperty("java.io.tmpdir")).toRealPath();
        for (Path logDir : broker.liveLogDirs()) {
            if (parent.startsWith(logDir.toRealPath())) {
                throw new IOException(parent + " is in the log directory " + logDir
                        + "; set java.io.tmpdir to another directory");
            }
        }
        if (Files.getFileStore(parent).getUsableSpace() < NEEDED_BYTES) {
            throw new IOException(parent + " has less than " + (NEEDED_BYTES >> 20) + " MiB of free space");
        }
        return Files.createTempDirectory(parent, DIRECTORY).toRealPath();
    }

    private static void fill(SelfTestLog log) throws IOException, ReflectiveOperationException {
        for (long offset = 0; offset <= END; offset++) {
            if (offset == SECOND || offset == END) {
                log.roll();
            }
            log.append(SelfTestData.batch(offset));
        }
        log.raiseHighWatermark();
    }

    private Result swapIn(SelfTestLog log) {
        try {
            Path staged = stage(log.dir());
            long inode = FileFacts.of(staged.resolve("log")).inode();
            Outcome outcome = new Outcome();
            SwapRequest request = request(log, staged);
            Evidence evidence = new Evidence(log, request.witnesses());
            evidence.use(request);
            new Swap(log, request, evidence, outcome, new ReentrantLock()).run(new Pauses(journal));
            SelfTestCheck.check(log, RETAINED, END, inode, outcome, DELETE_DELAY_MS);
            return new Result("passed", "files, offsets, indexes, producers, appends and deletions are as expected");
        } catch (VirtualMachineError e) { // a failure of the JVM shows nothing about the release
            return new Result("not_run", "it was interrupted: " + textOf(e));
        } catch (IOException e) {
            return new Result(concernsNames(e) ? "failed" : "not_run", textOf(e));
        } catch (Throwable e) {
            String text = e instanceof Refusal ? e.getMessage() : textOf(e);
            return new Result("failed", text);
        }
    }

    /** Replaces the directory's random number, so that a repeated failure has the same text and is logged once. */
    static String textOf(Throwable failure) {
        return failure.toString().replaceAll(DIRECTORY + "\\d+", DIRECTORY + "*");
    }

    /** Whether the release may use other file names. Any other IOException is a failing or full disk. */
    private static boolean concernsNames(IOException e) {
        return e instanceof NoSuchFileException || e instanceof FileNotFoundException
                || e instanceof FileAlreadyExistsException || e instanceof DirectoryNotEmptyException;
    }

    private static Path stage(Path partition) throws IOException {
        Path directory = Files.createDirectories(partition.resolve(".kstage").resolve(PLAN));
        Files.write(directory.resolve("log"), SelfTestData.log(RETAINED));
        Files.write(directory.resolve("index"), SelfTestData.index(RETAINED));
        Files.write(directory.resolve("timeindex"), SelfTestData.timeIndex(RETAINED));
        return directory;
    }

    private static SwapRequest request(SelfTestLog log, Path staged) throws IOException, Refusal {
        List<SegmentFacts> sources = new ArrayList<>();
        for (BrokerSegment segment : log.segments(0, END)) {
            sources.add(segment.facts());
        }
        Map<String, Group.StagedFile> files = new LinkedHashMap<>();
        for (String kind : List.of("log", "index", "timeindex")) {
            byte[] bytes = Files.readAllBytes(staged.resolve(kind));
            CRC32C crc = new CRC32C();
            crc.update(bytes);
            files.put(kind, new Group.StagedFile(kind, bytes.length, (int) crc.getValue()));
        }
        Group group = new Group(0, END, List.copyOf(sources), files);
        return new SwapRequest(PLAN, TOPIC, 0, null, log.dir().toString(), log.logStartOffset(), sources, List.of(group),
                null, null, false, PLAN);
    }

    private static void remove(Path directory) {
        if (directory == null) {
            return;
        }
        try {
            Files.walkFileTree(directory, new SimpleFileVisitor<>() {
                @Override
                public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                    Files.delete(file);
                    return FileVisitResult.CONTINUE;
                }

                @Override
                public FileVisitResult postVisitDirectory(Path visited, IOException e) throws IOException {
                    Files.delete(visited);
                    return FileVisitResult.CONTINUE;
                }
            });
        } catch (IOException | RuntimeException e) {
            directory.toFile().deleteOnExit(); // this works only if it is empty by then; otherwise a few kilobytes stay
        }
    }
}
