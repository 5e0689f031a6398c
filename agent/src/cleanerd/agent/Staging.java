package cleanerd.agent;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.AccessMode;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** The staged files of one group, which must be in {@code <partition>/.kstage/<plan id>/} (A-23.1, U-21). */
final class Staging {
    private static final String FOLDER = ".kstage";

    private final Map<String, Path> paths;
    private final Map<String, FileFacts> facts;

    /**
     * @param paths by kind
     * @param facts by kind, as they were when the checks began
     */
    Staging(Map<String, Path> paths, Map<String, FileFacts> facts) {
        this.paths = paths;
        this.facts = facts;
    }

    static Staging of(Path partitionDir, String plan, Group group) throws IOException, Refusal {
        int owner = FileFacts.of(partitionDir).uid();
        Path folder = partitionDir.resolve(FOLDER);
        checkFolder(folder);
        Path directory = folder.resolve(plan);
        checkFolder(directory);
        Map<String, Path> paths = new LinkedHashMap<>();
        Map<String, FileFacts> facts = new LinkedHashMap<>();
        for (Map.Entry<String, Group.StagedFile> entry : group.files().entrySet()) {
            Path path = directory.resolve(entry.getValue().name());
            if (!directory.equals(path.getParent())) {
                throw new Refusal("bad_path", "staged file '" + entry.getValue().name() + "' is not in " + directory);
            }
            FileFacts found = factsOf(path);
            checkFile(path, found, owner);
            if (found.size() != entry.getValue().size()) {
                throw new Refusal(codeOf(entry.getKey()), path + " has " + found.size() + " bytes, the request says "
                        + entry.getValue().size());
            }
            paths.put(entry.getKey(), path);
            facts.put(entry.getKey(), found);
        }
        return new Staging(paths, facts);
    }

    /** The protocol's error code for a damaged file of this kind. */
    static String codeOf(String kind) {
        return "bad_" + kind;
    }

    private static void checkFolder(Path folder) throws IOException, Refusal {
        if (!factsOf(folder).directory()) {
            throw new Refusal("bad_path", folder + " is not a directory");
        }
    }

    private static FileFacts factsOf(Path path) throws IOException, Refusal {
        try {
            return FileFacts.of(path);
        } catch (NoSuchFileException e) {
            throw new Refusal("no_staged_file", path + " is missing");
        }
    }

    private static void checkFile(Path path, FileFacts facts, int owner) throws IOException, Refusal {
        if (!facts.regular() || facts.links() != 1) {
            throw new Refusal("bad_path", path + " is not a regular file with exactly one hard link");
        }
        if (facts.uid() != owner) {
            throw new Refusal("bad_owner", path + " belongs to uid " + facts.uid() + ", the partition to " + owner);
        }
        try {
            path.getFileSystem().provider().checkAccess(path, AccessMode.READ, AccessMode.WRITE);
        } catch (AccessDeniedException e) { // a failing disk does not show the owner
            throw new Refusal("bad_owner", path + " cannot be read and written by the broker: permission denied");
        }
    }

    Map<String, Path> paths() {
        return paths;
    }

    Map<String, FileFacts> facts() {
        return facts;
    }
}
