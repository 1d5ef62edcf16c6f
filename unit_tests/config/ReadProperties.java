import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;

/** Reads a properties text per line of its input, in Base64 of UTF-16, and writes its keys and values the same way. */
public class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_16LE);
            List<String> read = new ArrayList<>();
            Properties properties = new Properties() {
                @Override
                public synchronized Object put(Object key, Object value) {
                    read.add(encoded((String) key) + "=" + encoded((String) value));
                    return null;
                }
            };
            try {
                properties.load(new StringReader(text));
                System.out.println("read " + String.join(" ", read));
            } catch (IllegalArgumentException malformed) {
                System.out.println("refused");
            }
        }
    }

    // Base64 of UTF-16 loses nothing, also of half of a surrogate pair. The padding is left out: it is a separator here.
    static String encoded(String text) {
        byte[] raw = new byte[2 * text.length()];
        for (int index = 0; index < text.length(); index++) {
            raw[2 * index] = (byte) text.charAt(index);
            raw[2 * index + 1] = (byte) (text.charAt(index) >> 8);
        }
        return Base64.getEncoder().withoutPadding().encodeToString(raw);
    }
}
