package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.Map;

/**
 * What {@code lstat} says about a file; a symbolic link is never followed.
 *
 * @param changed when the file was last written to, renamed or given other attributes, which nobody can set back
 */
record FileFacts(long size, long inode, long modifiedMs, int links, int uid, boolean regular, boolean directory,
        FileTime changed) {
    private static final String WANTED = "unix:size,ino,lastModifiedTime,nlink,uid,isRegularFile,isDirectory,ctime";

    static FileFacts of(Path path) throws IOException {
        Map<String, Object> values = Files.readAttributes(path, WANTED, LinkOption.NOFOLLOW_LINKS);
        return new FileFacts(
                (Long) values.get("size"),
                (Long) values.get("ino"),
                ((FileTime) values.get("lastModifiedTime")).toMillis(),
                (Integer) values.get("nlink"),
                (Integer) values.get("uid"),
                (Boolean) values.get("isRegularFile"),
                (Boolean) values.get("isDirectory"),
                (FileTime) values.get("ctime"));
    }

    /** These facts of a file that has got another name since. */
    FileFacts renamed(FileFacts after) {
        return new FileFacts(size, inode, modifiedMs, links, uid, regular, directory, after.changed);
    }
}
